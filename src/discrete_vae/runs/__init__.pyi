from .hub import pretrained_names as pretrained_names
from .run_directory import RunDirectory as RunDirectory
