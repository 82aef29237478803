from .datasets import load_dataset as load_dataset
from .rows import Rows as Rows
from .rows import load_file as load_file
from .rows import read_rows as read_rows
from .splits import DatasetDescription as DatasetDescription
from .splits import DataSplits as DataSplits
from .tables import read_csv as read_csv
