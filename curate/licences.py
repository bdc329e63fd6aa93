"""What a photo's licence is called, where its text stands, and what it allows.

Sources and people write licences in many ways; `parse` maps them to SPDX ids, and what it does not
know for certain to "LicenseRef-unknown". It never guesses: a licence without its version, two
licences in one text, or a remark that it cannot read ("CC BY 4.0 as stated on the page") is no
licence to release a photo under.

`redistributable` answers one question: may the unmodified bytes be passed on, in a dataset that
anyone may download free of charge? CC BY-NC and CC BY-ND allow that ("License Grant" in their
texts: the work may be reproduced and shared; NC limits this to non-commercial purposes, ND to
unadapted copies). Who sells a dataset or crops its photos asks `commercial` and `derivatives` as
well.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from curate.errors import UnknownNameError


@dataclass(frozen=True)
class Licence:
    """A licence, or the statement that stands in its place.

    Args:
        id: SPDX id, or "LicenseRef-…" for what SPDX does not list; `parse(id)` gives it back.
        name: for people.
        url: the licence's text; empty where there is none.
        version: for example "4.0"; empty where there is none.
        redistributable: whether unmodified copies may be passed on free of charge.
        commercial: whether they may be used commercially.
        derivatives: whether altered copies (crops, re-encodings) may be passed on.
        share_alike: whether altered copies must carry the same licence.
        attribution: whether the author must be named.
    """

    id: str
    name: str
    url: str = ""
    version: str = ""
    redistributable: bool = False
    commercial: bool = False
    derivatives: bool = False
    share_alike: bool = False
    attribution: bool = True


UNKNOWN = Licence("LicenseRef-unknown", "unknown licence")
ALL_RIGHTS_RESERVED = Licence("LicenseRef-all-rights-reserved", "all rights reserved")


def parse(text: str | None) -> Licence:
    """The licence that a text names.

    Recognised are SPDX ids, the names, short forms and addresses of the Creative Commons licences
    and marks (versions 1.0 to 4.0 with their ports, any language's deed), and a few others that
    photos carry. A short form or an address may stand beside the name if all mean the same.

    Args:
        text: as a source or a person wrote it; None or empty where nothing is said.

    Returns:
        The licence; `UNKNOWN` where the text is not understood as a whole. A Creative Commons
        licence without its version is "LicenseRef-CC-BY-unversioned" and the like: no version
        allows copies that do not name it, so such a photo is not redistributable until somebody
        looks the version up. The same holds for "no known copyright restrictions", which grants
        nothing. A port that SPDX does not list is "LicenseRef-CC-BY-SA-2.0-DE" and the like.
    """
    return _parse(text or "")


# A longer text is prose about a licence, not its name.
_LONGEST = 600

_CC = "https://creativecommons.org/"
_ELEMENTS = (
    {"by"},
    {"by", "sa"},
    {"by", "nd"},
    {"by", "nc"},
    {"by", "nc", "sa"},
    {"by", "nc", "nd"},
)
_PORT = (
    "am|ar|at|au|az|be|bg|br|ca|ch|cl|cn|co|cr|cz|de|dk|ec|ee|eg|es|fi|fr|ge|gr|gt|hk|hr|hu|ie|igo|"
    "il|in|it|jp|kr|lu|mk|mt|mx|my|nl|no|nz|pe|ph|pl|pr|pt|ro|rs|scotland|se|sg|si|th|tw|ua|ug|uk|"
    "us|ve|vn|za"
)
_SPDX_PORTS = re.compile(
    r"CC-BY-2\.5-AU|CC-BY-3\.0-(AT|AU|DE|IGO|NL|US)|CC-BY-NC-3\.0-DE|CC-BY-NC-ND-3\.0-(DE|IGO)|"
    r"CC-BY-NC-SA-2\.0-(DE|FR|UK)|CC-BY-NC-SA-3\.0-(DE|IGO)|CC-BY-ND-3\.0-DE|CC-BY-SA-2\.0-UK|"
    r"CC-BY-SA-2\.1-JP|CC-BY-SA-3\.0-(AT|DE|IGO)"
)

_ADDRESS = re.compile(
    r"(?:(?:https?:)?//|(?:www\.)?creativecommons\.org/)[^\s()\[\]<>\"]+", re.IGNORECASE
)
_CC_PATH = re.compile(
    r"creativecommons\.org/(?:licenses/(?P<elements>[a-z-]+)|publicdomain/(?P<mark>zero|mark))"
    rf"/(?P<version>\d\.\d)(?:/(?P<port>{_PORT}))?(?:/(?:deed|legalcode)(?:[._-][a-z]+)*)?"
)
_CC_WORDS = re.compile(
    r"(?P<cc>cc )?(?P<elements>(?:by|nc|nd|sa)(?: (?:by|nc|nd|sa))*)"
    rf"(?: (?:(?P<version>[1-4]\.\d|[134])|unversioned))?(?: (?P<port>{_PORT}))?"
)
_LEAD = re.compile(r"^(?:this (?:work|photo|image|picture) is )?licen[cs]ed under (?:an? |the )?")
_SPELT = (
    (re.compile(r"\bcreative ?commons\b"), "cc"),
    (re.compile(r"\bcc ?by\b"), "cc by"),
    (re.compile(r"\bcc 0\b"), "cc0"),
    (re.compile(r"\battribution\b"), "by"),
    (re.compile(r"\bnon ?commercial\b"), "nc"),
    (re.compile(r"\bshare ?alike\b"), "sa"),
    (re.compile(r"\bno ?deriv(?:s|atives?(?: ?works)?)\b"), "nd"),
    (re.compile(r"\b(?:the|version|international|unported|generic|universal|deed)\b"), ""),
    (re.compile(r"\b(?:public )?licen[cs]e\b"), ""),
    (re.compile(r"\bv(?=\d)"), ""),
    (re.compile(r"\b(\d) (\d)\b(?!\.)"), r"\1.\2"),
)


def _free(
    identifier: str,
    name: str,
    url: str = "",
    version: str = "",
    *,
    attribution: bool = True,
    share_alike: bool = False,
) -> Licence:
    return Licence(identifier, name, url, version, True, True, True, share_alike, attribution)


_CC0 = _free("CC0-1.0", "CC0 1.0", f"{_CC}publicdomain/zero/1.0/", "1.0", attribution=False)
_PDM = _free(
    "CC-PDM-1.0", "Public Domain Mark 1.0", f"{_CC}publicdomain/mark/1.0/", "1.0", attribution=False
)
# "Public domain" in somebody's own words, with no deed behind it.
_PUBLIC_DOMAIN = _free("LicenseRef-public-domain", "public domain", attribution=False)
_US_GOVERNMENT = _free(
    "LicenseRef-US-Gov-Work",
    "United States Government Work",
    "https://www.usa.gov/government-copyright",
    attribution=False,
)
_NO_KNOWN_RESTRICTIONS = Licence(
    "LicenseRef-Flickr-Commons",
    "no known copyright restrictions",
    "https://www.flickr.com/commons/usage/",
)
_APACHE = _free(
    "Apache-2.0", "Apache License 2.0", "https://www.apache.org/licenses/LICENSE-2.0", "2.0"
)
_MIT = _free("MIT", "MIT License", "https://opensource.org/license/mit")
_BSD = _free("BSD-3-Clause", "BSD 3-Clause License", "https://opensource.org/license/bsd-3-clause")
_UNLICENSE = _free("Unlicense", "The Unlicense", "https://unlicense.org/", attribution=False)
_FREE_ART = _free(
    "LAL-1.3",
    "Licence Art Libre 1.3",
    "https://artlibre.org/licence/lal/en/",
    "1.3",
    share_alike=True,
)
_OPEN_GOVERNMENT = _free(
    "OGL-UK-3.0",
    "Open Government Licence v3.0",
    "https://www.nationalarchives.gov.uk/doc/open-government-licence/version/3/",
    "3.0",
)

#: Licences outside the grammar of Creative Commons, with further texts and addresses for each.
_FIXED: dict[Licence, tuple[str, ...]] = {
    UNKNOWN: (),
    ALL_RIGHTS_RESERVED: (),
    _CC0: ("CC0", "CC Zero", "CC Zero 1.0", "CC0 1.0 Public Domain Dedication"),
    _PDM: ("PDM", "PDM 1.0", "CC PDM", "Public Domain Mark", "CC Public Domain Mark 1.0"),
    _PUBLIC_DOMAIN: ("PD", "publicdomain", "Public Domain Dedication"),
    _US_GOVERNMENT: ("US Government Work", "https://www.usa.gov/copyright.shtml"),
    _NO_KNOWN_RESTRICTIONS: (),
    _APACHE: (),
    _MIT: ("https://opensource.org/licenses/MIT",),
    _BSD: ("https://opensource.org/licenses/BSD-3-Clause",),
    _UNLICENSE: (),
    _FREE_ART: ("Free Art License 1.3",),
    _OPEN_GOVERNMENT: (),
}


@lru_cache(maxsize=4096)
def _parse(text: str) -> Licence:
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    if "all rights reserved" in text:
        return ALL_RIGHTS_RESERVED
    if not text or len(text) > _LONGEST:
        return UNKNOWN
    found = [_from_address(address) for address in _ADDRESS.findall(text)]
    for part in re.split(r"[()\[\]]", _ADDRESS.sub(" ", text)):
        if words := _fold(part):
            found.append(_from_words(words))
    return _common(found)


def _common(found: list[Licence]) -> Licence:
    """The one licence that several readings of a text mean, or `UNKNOWN`."""
    distinct = set(found)
    if len(distinct) > 1 and distinct <= {_PUBLIC_DOMAIN, _CC0, _PDM, _US_GOVERNMENT}:
        distinct.discard(_PUBLIC_DOMAIN)
    versioned = {_stem(licence) for licence in distinct if licence.version}
    distinct = {item for item in distinct if item.version or _stem(item) not in versioned}
    return distinct.pop() if len(distinct) == 1 else UNKNOWN


def _stem(licence: Licence) -> str:
    found = re.match(r"(?:LicenseRef-)?(CC-BY(?:-[A-Z]{2})*)-(?:\d|unversioned)", licence.id)
    return found[1] if found else licence.id


def _fold(text: str) -> str:
    text = " ".join(re.split(r"[\s_\-\u2010-\u2015,:;/]+", text.casefold())).strip(" .")
    text = _LEAD.sub("", text)
    for pattern, code in _SPELT:
        text = " ".join(pattern.sub(code, text).split())
    return text


def _from_words(words: str) -> Licence:
    if words in _BY_WORDS:
        return _BY_WORDS[words]
    found = _CC_WORDS.fullmatch(words.removeprefix("licenseref "))
    # "Attribution" alone, without "Creative Commons" or a version, is a licence of its own.
    if found is None or not (found["cc"] or found["version"]):
        return UNKNOWN
    version = found["version"] or ""
    if len(version) == 1:
        version += ".0"
    return _creative_commons(found["elements"].split(), version, found["port"] or "")


def _from_address(address: str) -> Licence:
    address = _bare(address)
    if address in _BY_ADDRESS:
        return _BY_ADDRESS[address]
    if address.startswith("spdx.org/licenses/"):
        return _from_words(_fold(address.rpartition("/")[2]))
    found = _CC_PATH.fullmatch(address)
    if found is None:
        return UNKNOWN
    if found["mark"]:
        plain = found["version"] == "1.0" and not found["port"]
        return (_CC0 if found["mark"] == "zero" else _PDM) if plain else UNKNOWN
    return _creative_commons(found["elements"].split("-"), found["version"], found["port"] or "")


def _bare(address: str) -> str:
    """An address without what does not change its meaning."""
    address = re.sub(r"^(?:https?:)?//", "", address.casefold()).removeprefix("www.")
    address = re.split(r"[?#]", address)[0].rstrip("/.,;")
    return re.sub(r"\.(?:html|txt)$", "", address)


def _creative_commons(elements: list[str], version: str, port: str) -> Licence:
    if len(set(elements)) != len(elements) or set(elements) not in _ELEMENTS:
        return UNKNOWN
    if not _exists(version, port):
        return UNKNOWN
    parts = [part for part in ("by", "nc", "sa", "nd") if part in elements]
    kind = "-".join(parts)
    identifier = f"CC-{kind}-{version or 'unversioned'}{'-' if port else ''}{port}"
    identifier = identifier.upper().replace("UNVERSIONED", "unversioned")
    if not version or (port and not _SPDX_PORTS.fullmatch(identifier)):
        identifier = f"LicenseRef-{identifier}"
    # The address of this one version keeps its old order.
    path = "by-nd-nc" if (kind, version) == ("by-nc-nd", "1.0") else kind
    return Licence(
        id=identifier,
        name=" ".join(filter(None, (f"CC {kind}", version, port))).upper(),
        url=f"{_CC}licenses/{path}/{version}/{port}{'/' if port else ''}" if version else "",
        version=version,
        redistributable=bool(version),
        commercial="nc" not in parts,
        derivatives="nd" not in parts,
        share_alike="sa" in parts,
    )


def _exists(version: str, port: str) -> bool:
    if not port:
        return version in ("", "1.0", "2.0", "2.5", "3.0", "4.0")
    if port == "igo":
        return version == "3.0"
    return version in ("1.0", "2.0", "2.1", "2.5", "3.0")


_BY_WORDS = {
    _fold(text): licence
    for licence, texts in _FIXED.items()
    for text in (licence.id, licence.name, *texts)
    if "//" not in text
}
_BY_ADDRESS = {
    _bare(text): licence
    for licence, texts in _FIXED.items()
    for text in (licence.url, *texts)
    if "//" in text
}


@lru_cache(maxsize=1)
def redistributable_ids() -> tuple[str, ...]:
    """The ids of all licences whose photos may be passed on, in alphabetical order.

    They are what an empty `collect.licences` stands for: all that `parse` can give, ports of
    Creative Commons included.
    """
    versions = ("1.0", "2.0", "2.1", "2.5", "3.0", "4.0")
    known = {*_FIXED} | {
        _creative_commons(sorted(elements), version, port)
        for elements in _ELEMENTS
        for version in versions
        for port in ("", *_PORT.split("|"))
    }
    return tuple(sorted(licence.id for licence in known if licence.redistributable))


@lru_cache(maxsize=16)
def allow_list(entries: tuple[str, ...] | frozenset[str] = ()) -> frozenset[str]:
    """The ids that a list of licences stands for.

    Args:
        entries: licences in any spelling that `parse` understands; none stands for
            `redistributable_ids`.

    Raises:
        UnknownNameError: one is not understood, or lacks its version; the text names the nearest.
    """
    return frozenset(map(_entry_id, entries)) or frozenset(redistributable_ids())


def _entry_id(entry: str) -> str:
    licence = parse(entry)
    # "CC BY" in a list is meant as every version of it, and would match none.
    if licence is UNKNOWN or ("unversioned" in licence.id and "unversioned" not in entry):
        raise UnknownNameError(
            "licence", entry, redistributable_ids(), note='write an SPDX id such as "CC-BY-4.0"'
        )
    return licence.id


def allowed(text: str | None, entries: tuple[str, ...] | frozenset[str] = ()) -> bool:
    """Whether a photo may be taken whose licence a source words like this.

    Args:
        text: the licence in the source's words; what is not understood is not allowed.
        entries: the allow-list, see `allow_list`.

    Raises:
        UnknownNameError: an entry of the allow-list is not understood.
    """
    return parse(text).id in allow_list(entries)


def attribution(title: str | None, author: str | None, page: str | None, licence: Licence) -> str:
    """What to print beside one photo: its title, author, source and licence, in one line.

    Args:
        title: what its author calls it.
        author: who made it.
        page: the address of the page that shows it.
        licence: with its version and address, where it has them.

    Returns:
        Plain text; a part that is not known is left out, but an author whom the licence asks to
        name is told to be missing.
    """
    title, author, page = (" ".join((part or "").split()) for part in (title, author, page))
    what = f"“{title}”" if title else "Untitled photo"
    if author:
        what += f" by {author}"
    elif licence.attribution and licence.version:
        what += " by an author who is not named"
    if page:
        what += f" ({page})"
    name = f"{licence.name} ({licence.url})" if licence.url else licence.name
    return f"{what} {_STATED.get(licence, 'is licensed under {}').format(name)}."


#: How licences are told that are no licences in the strict sense.
_STATED = {
    UNKNOWN: "has an unknown licence",
    ALL_RIGHTS_RESERVED: "has all rights reserved",
    _CC0: "is dedicated to the public domain under {}",
    _UNLICENSE: "is dedicated to the public domain under {}",
    _PDM: "is marked with {}",
    _PUBLIC_DOMAIN: "is in the public domain, as its source says",
    _US_GOVERNMENT: "is a {}",
    _NO_KNOWN_RESTRICTIONS: "has {}",
}
