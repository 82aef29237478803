from .io import pretrained_names as pretrained_names
from .load import LoadedRun as LoadedRun
from .load import load_pretrained as load_pretrained
from .load import load_run as load_run
from .run_directory import RunDirectory as RunDirectory
