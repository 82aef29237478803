"""Exceptions of the library, all in one form: the argument, the rule, what was received, the repair."""


class DiscreteVAEError(Exception):
    """Base class of every exception that the library raises on purpose."""


class InvalidInputError(DiscreteVAEError, ValueError):
    """An argument, a file or a setting breaks a rule.

    Args:
        argument: Name of the argument, key or file, as the caller wrote it.
        rule: The rule, as the end of a sentence that starts with the argument's name ("must be ...").
        received: What came instead, short enough for one line.
        repair: What to do about it, as a sentence.

    Examples:
        >>> raise InvalidInputError("num_left", "must be a positive integer", "-3", "Give at least 1.")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: num_left must be a positive integer; received -3. Give at least 1.
    """

    def __init__(self, argument: str, rule: str, received: object, repair: str) -> None:
        self.argument = argument
        self.rule = rule
        self.received = received
        self.repair = repair
        super().__init__(f"{argument} {rule}; received {received}. {repair}")
