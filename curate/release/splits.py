"""Dealing the images of a release to splits, so that none knows the pictures of another.

Near duplicates and photos of one author go to one split: whoever tunes on the one would else know
something of the other. Within that the classes keep their shares, and chance alone decides, by a
seeded hash of content.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from curate.errors import UsageError
from curate.files import sha256_bytes
from curate.labels.classes import cannot_be_a_folder

#: The split of what no other one takes, and that of the control sample.
REST, CONTROL = "test", "control"

# What Hugging Face's loader calls all splits together.
_ALL = "all"

# Loaders take a split's name for an identifier, and file systems take it for a folder.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")

# What people write where they know no author: it says nothing of who took the photo.
_NOBODY = frozenset(
    (
        *("", "-", "?", "anonymous", "anon", "author unknown", "n/a", "na", "none", "null"),
        *("unknown", "unknown author", "various", "see page"),
    )
)


def parse_splits(texts: Sequence[str]) -> dict[str, Decimal]:
    """Splits by name with their fractions, which add up to 1.

    Args:
        texts: each as "dev=0.1"; what they leave goes to `REST`.

    Raises:
        UsageError: a name or a fraction is unusable; the text says which.
    """
    found: dict[str, Decimal] = {}
    for text in texts:
        name, _, share = text.partition("=")
        if not _NAME.fullmatch(name) or name == CONTROL:
            raise UsageError(
                f"--split {text!r}: a split is called by small letters, digits and underscores, "
                f"and {CONTROL!r} is the control sample's; for example dev=0.1"
            )
        if name == _ALL or cannot_be_a_folder(name):
            raise UsageError(
                f"--split {text!r}: {name!r} means something else to loaders or to systems; "
                "choose another name, for example dev=0.1"
            )
        try:
            fraction = Decimal(share)
        except InvalidOperation:
            fraction = Decimal(0)
        if not (fraction.is_finite() and 0 < fraction <= 1):
            raise UsageError(
                f"--split {text!r}: write a fraction above 0, 1 at most, for example {name}=0.1"
            )
        if name in found:
            raise UsageError(f"--split {name} is given twice")
        found[name] = fraction
    rest = 1 - sum(found.values(), Decimal(0))
    if rest < 0:
        raise UsageError(f"the fractions of --split add up to {1 - rest}, which is more than 1")
    if found and rest:
        if REST in found:
            raise UsageError(
                f"the fractions of --split add up to {1 - rest}; with a split called {REST}, which "
                "else takes the rest, they must add up to 1"
            )
        found[REST] = rest
    return found


class Groups:
    """What must stay together: sets of keys that grow into one another."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._above = {key: key for key in keys}

    def join(self, a: str, b: str) -> None:
        """Put two keys in one group; a key that was not there yet links others only."""
        for key in (a, b):
            self._above.setdefault(key, key)
        one, other = sorted((self._root(a), self._root(b)))
        self._above[other] = one

    def of(self, keys: Iterable[str]) -> list[list[str]]:
        """The groups of `keys`, each sorted, in the order of their first keys."""
        found: dict[str, list[str]] = defaultdict(list)
        for key in sorted(keys):
            found[self._root(key)].append(key)
        return list(found.values())

    def _root(self, key: str) -> str:
        root = key
        while self._above[root] != root:
            root = self._above[root]
        while self._above[key] != root:
            self._above[key], key = root, self._above[key]
        return root


def author_key(source: str, author: str | None) -> str | None:
    """What an author's photos share; None where nobody says who it is.

    Args:
        source: names mean something within a source alone.
        author: as the source writes it.
    """
    name = " ".join((author or "").casefold().split())
    return None if name in _NOBODY else f"author:{source}:{name}"


def deal(
    groups: Sequence[Sequence[str]],
    classes: Mapping[str, str],
    shares: Mapping[str, Decimal],
    seed: int,
    before: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The split of each key: every group whole, classes and the whole as near to the shares as
    that allows.

    What an earlier version has dealt stays where it is, so that numbers of two versions compare.
    Of the others large groups choose first, and of equal ones the seeded hash decides. Each goes
    where most is missing of its classes and of the whole.

    Args:
        groups: keys that stay together; they need not be in any order.
        classes: key to its class.
        shares: name of the split to its fraction; they add up to 1.
        seed: of the order.
        before: key to its split in an earlier version. A group that has come together since goes
            to the split of most of its keys.
    """
    total = sum(len(group) for group in groups)
    by_class = Counter(classes[key] for group in groups for key in group)
    missing: dict[str, Decimal] = {name: share * total for name, share in shares.items()}
    missing_of = {
        (name, each): share * count
        for name, share in shares.items()
        for each, count in by_class.items()
    }

    earlier = before or {}

    def kept(group: Sequence[str]) -> Counter[str]:
        return Counter(earlier[key] for key in group if earlier.get(key) in shares)

    def turn(group: Sequence[str]) -> tuple[bool, int, str]:
        lot = sha256_bytes(f"split:{seed}:{min(group)}".encode())
        return not kept(group), -len(group), lot

    dealt: dict[str, str] = {}
    for group in sorted(groups, key=turn):
        counts = Counter(classes[key] for key in group)

        def need(name: str, group: Sequence[str] = group, counts: Counter[str] = counts) -> Decimal:
            # Half of what it adds is taken off, so that a group larger than what is missing does
            # not pass for welcome.
            whole = len(group) * (missing[name] - Decimal(len(group)) / 2)
            return whole + sum(
                count * (missing_of[name, each] - Decimal(count) / 2)
                for each, count in counts.items()
            )

        was = kept(group)
        if was:
            most = max(was.values())
            chosen = min(name for name, count in was.items() if count == most)
        else:
            chosen = max(shares, key=lambda name: (need(name), shares[name], name))
        for key in group:
            dealt[key] = chosen
        missing[chosen] -= len(group)
        for each, count in counts.items():
            missing_of[chosen, each] -= count
    return dealt
