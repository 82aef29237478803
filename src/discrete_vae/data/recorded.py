"""What a run keeps of its data, so that its pictures are drawn where the data are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from discrete_vae.data.dataset import DataSplits, picture_shape

_KEY = "picture"


@dataclass(frozen=True)
class RecordedData:
    """What pictures need of a data set.

    Attributes:
        event_shape: Shape of an example, as `DataSplits` has it.
        low: The least value of the test part; 0 if none is observed.
        high: The greatest; 1 if none is observed.
    """

    event_shape: tuple[int, ...]
    low: float
    high: float

    @classmethod
    def of(cls, dataset: DataSplits) -> Self:
        """What there is to keep of a data set."""
        test = dataset.summaries["test"]
        low, high = (test.low, test.high) if test.low <= test.high else (0.0, 1.0)
        return cls(dataset.event_shape, low, high)

    @classmethod
    def read(cls, environment: Mapping[str, Any]) -> Self | None:
        """What a run's environment says of its data; None if it says nothing, as those of earlier versions.

        Args:
            environment: As `RunDirectory.read_environment` gives it.
        """
        fields = environment.get("data", {}).get(_KEY)
        if fields is None:
            return None
        return cls(tuple(fields["event_shape"]), float(fields["low"]), float(fields["high"]))

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of the picture of an example; None for a table."""
        return picture_shape(self.event_shape)

    @property
    def num_features(self) -> int:
        """Features of one example."""
        return math.prod(self.event_shape)


def describe_data(dataset: DataSplits) -> dict[str, Any]:
    """What ``environment.json`` says of a run's data, as JSON can express it.

    Examples:
        >>> from discrete_vae import load_dataset
        >>> found = describe_data(load_dataset("digits"))
        >>> found["name"], found["picture"]
        ('digits', {'event_shape': [1, 8, 8], 'low': 0.0, 'high': 1.0})
    """
    recorded = asdict(RecordedData.of(dataset))
    recorded["event_shape"] = list(dataset.event_shape)
    return {"name": dataset.name, **asdict(dataset.description), _KEY: recorded}
