"""Settings of python's types as the texts that the library reads."""

from __future__ import annotations

from typing import Any, Mapping

from ._errors import with_advice


def texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """By name: True and False are 1 and 0, lists have commas, None leaves the setting as it is."""
    found = {str(name): _text(value) for name, value in settings.items() if value is not None}
    for name, value in found.items():
        # The library's texts end with the first NUL.
        if "\0" in name or "\0" in value:
            part = "name" if "\0" in name else "value"
            raise ValueError(with_advice(f"the setting {name!r} has a NUL character in its {part}",
                                         "remove that character"))
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(_text(part) for part in value)
    return str(value)
