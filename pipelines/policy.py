"""Which licences are taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from curate.errors import ImageRefused
from curate.licences import UNKNOWN, Licence, allow_list
from curate.sources.protocol import Hit


@dataclass(frozen=True)
class Policy:
    """The allow-list of a command.

    Attributes:
        licences: what the setting `collect.licences` names; none stands for all that allow
            redistribution.
        allow_unknown: whether photos are taken whose licence nobody tells. They can never be
            released.
    """

    licences: tuple[str, ...] = ()
    allow_unknown: bool = False

    @cached_property
    def allowed(self) -> frozenset[str]:
        """SPDX ids.

        Raises:
            UnknownNameError: an entry is no licence.
        """
        return allow_list(self.licences)

    @property
    def sent(self) -> frozenset[str] | None:
        """What a source is asked for; None for photos of all licences and of none."""
        return None if self.allow_unknown else self.allowed

    @property
    def identity(self) -> list[str] | None:
        """What makes two searches different: they pass over other photos."""
        return None if self.allow_unknown else sorted(self.licences)

    def allows(self, licence: Licence) -> bool:
        """Whether photos under a licence are taken."""
        return licence.id in self.allowed or (self.allow_unknown and is_unknown(licence))

    def check(self, hit: Hit, licence: Licence) -> None:
        """Refuse a photo whose licence is not allowed, whatever the source was asked for.

        Raises:
            ImageRefused: "licence".
        """
        if self.allows(licence):
            return
        told = f"{licence.name} ({hit.licence})" if hit.licence else "none told"
        if licence.id.endswith("-unversioned"):
            told += ": which version? Only one with its version says what is allowed"
        raise ImageRefused("licence", told)


def is_unknown(licence: Licence) -> bool:
    """Whether it is not known what a licence allows: none is told, or its version is missing."""
    return licence.id == UNKNOWN.id or licence.id.endswith("-unversioned")
