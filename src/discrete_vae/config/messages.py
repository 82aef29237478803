"""Pydantic's findings in the words of this house."""

from __future__ import annotations

from pydantic_core import ErrorDetails

_RULES = {
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
}


def rule_of(finding: ErrorDetails) -> str:
    """The rule that a value breaks, as the end of a sentence that starts with the field's name.

    Examples:
        >>> rule_of({"type": "greater_than", "msg": "Input should be greater than 0", "ctx": {"gt": 0}})
        'must be greater than 0'
        >>> rule_of({"type": "url_parsing", "msg": "Input should be a URL"})
        'must be a URL'
    """
    if finding["type"] in _RULES:
        return _RULES[finding["type"]].format(**finding.get("ctx", {}))
    words = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return words.replace("should", "must", 1)
