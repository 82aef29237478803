from .bridge import LogPartitionWarning as LogPartitionWarning
from .bridge import bennett_log_partition as bennett_log_partition
from .estimate import CheckedLogPartition as CheckedLogPartition
from .estimate import annealed_log_partition as annealed_log_partition
from .estimate import estimate_log_partition as estimate_log_partition
from .estimate import exact_log_partition as exact_log_partition
from .estimate import log_partition_surrogate as log_partition_surrogate
