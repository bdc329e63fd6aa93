"""Reading what an API answers: records of a known form, and one line for what is not."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from curate.errors import ImageRefused, SourceError


class Record(BaseModel):
    """Part of an answer; fields that are not named are passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


_R = TypeVar("_R", bound=Record)


def understood(form: type[_R], answer: Any, source: str, what: str = "the answer") -> _R:
    """An answer without which a search cannot go on.

    Args:
        form: what it should look like.
        answer: what the API answered, from JSON.
        source: the source's name, for the error.
        what: what to call it there.

    Raises:
        SourceError: it looks otherwise; the text names the field.
    """
    try:
        return form.model_validate(answer)
    except ValidationError as error:
        raise SourceError(f"{source}: {what} is not understood: {_told(error)}") from None


def malformed(error: ValidationError) -> ImageRefused:
    """What becomes of one image whose record does not have its form."""
    return ImageRefused("malformed-record", _told(error))


def whole_number(record: Any, field: str) -> int | None:
    """A number from a record that is not understood otherwise, to name it by."""
    value = record.get(field) if isinstance(record, dict) else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if type(value) is int and 0 < value < 10**19 else None


def _told(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{field}: {first['msg'][:1].lower()}{first['msg'][1:]}"
