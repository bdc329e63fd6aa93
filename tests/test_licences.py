"""Licences: what texts of sources and people mean, and what they do not."""

from __future__ import annotations

import itertools
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curate.errors import UsageError
from curate.licences import (
    ALL_RIGHTS_RESERVED,
    UNKNOWN,
    allow_list,
    allowed,
    attribution,
    parse,
    redistributable_ids,
)

KINDS = ("by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd")
VERSIONS = ("1.0", "2.0", "2.5", "3.0", "4.0")
CC = [f"CC-{kind.upper()}-{version}" for kind in KINDS for version in VERSIONS]
SINGLE = [
    "CC0-1.0",
    "CC-PDM-1.0",
    "MIT",
    "Apache-2.0",
    "BSD-3-Clause",
    "Unlicense",
    "LAL-1.3",
    "OGL-UK-3.0",
]


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        # short forms
        ("CC BY 4.0", "CC-BY-4.0"),
        ("cc by 4.0", "CC-BY-4.0"),
        ("CC-BY-4.0", "CC-BY-4.0"),
        ("CC_BY_4_0", "CC-BY-4.0"),
        ("CC_BY_NC_4_0", "CC-BY-NC-4.0"),
        ("CCBY 4.0", "CC-BY-4.0"),
        ("CC BY 4", "CC-BY-4.0"),
        ("(CC BY 4.0)", "CC-BY-4.0"),
        ("cc-by-sa-3.0", "CC-BY-SA-3.0"),
        ("CC BY\u2011NC\u2013SA\u00a02.5", "CC-BY-NC-SA-2.5"),
        ("CC BY-SA-NC 2.0", "CC-BY-NC-SA-2.0"),
        ("by-nc-nd 2.0", "CC-BY-NC-ND-2.0"),
        ("CC BY v3.0", "CC-BY-3.0"),
        ("CC BY 4.0 DEED", "CC-BY-4.0"),
        # names
        ("Creative Commons Attribution 4.0 International", "CC-BY-4.0"),
        ("Creative Commons Attribution-Share Alike 4.0", "CC-BY-SA-4.0"),
        ("Creative Commons Attribution Non Commercial Share Alike 2.0 Generic", "CC-BY-NC-SA-2.0"),
        ("Creative Commons Attribution-NoDerivs 3.0 Unported License", "CC-BY-ND-3.0"),
        ("Attribution-NonCommercial-NoDerivatives 4.0 International", "CC-BY-NC-ND-4.0"),
        (
            "Creative Commons Attribution-NonCommercial 4.0 International Public License "
            "(CC BY-NC 4.0)",
            "CC-BY-NC-4.0",
        ),
        (
            "This work is licensed under a Creative Commons Attribution 4.0 International License.",
            "CC-BY-4.0",
        ),
        # addresses
        ("https://creativecommons.org/licenses/by-nc/2.0/", "CC-BY-NC-2.0"),
        ("http://creativecommons.org/licenses/by-nc/2.0", "CC-BY-NC-2.0"),
        ("//creativecommons.org/licenses/by/4.0", "CC-BY-4.0"),
        ("creativecommons.org/licenses/by/4.0/", "CC-BY-4.0"),
        ("HTTPS://WWW.CreativeCommons.org/Licenses/BY/4.0/", "CC-BY-4.0"),
        ("https://creativecommons.org/licenses/by/4.0/deed.de", "CC-BY-4.0"),
        ("https://creativecommons.org/licenses/by/4.0/deed.zh-hans", "CC-BY-4.0"),
        ("https://creativecommons.org/licenses/by/4.0/deed.pt_BR", "CC-BY-4.0"),
        ("http://creativecommons.org/licenses/by/4.0/legalcode", "CC-BY-4.0"),
        ("https://creativecommons.org/licenses/by/4.0/legalcode.txt", "CC-BY-4.0"),
        ("https://creativecommons.org/licenses/by/4.0/?ref=source#deed", "CC-BY-4.0"),
        ("https://creativecommons.org/licenses/by-nd-nc/1.0/", "CC-BY-NC-ND-1.0"),
        ("CC BY 2.0 (https://creativecommons.org/licenses/by/2.0/)", "CC-BY-2.0"),
        ("CC BY 2.0: https://creativecommons.org/licenses/by/2.0/.", "CC-BY-2.0"),
        ("https://spdx.org/licenses/CC-BY-4.0.html", "CC-BY-4.0"),
        # ports
        ("https://creativecommons.org/licenses/by-sa/2.0/de/", "LicenseRef-CC-BY-SA-2.0-DE"),
        ("https://creativecommons.org/licenses/by-sa/3.0/de/deed.en", "CC-BY-SA-3.0-DE"),
        ("cc-by-sa-3.0-de", "CC-BY-SA-3.0-DE"),
        ("CC_BY_3_0_US", "CC-BY-3.0-US"),
        ("CC BY 2.1 es", "LicenseRef-CC-BY-2.1-ES"),
        ("CC BY-SA 3.0 IGO", "CC-BY-SA-3.0-IGO"),
        # public domain
        ("CC0", "CC0-1.0"),
        ("cc-zero", "CC0-1.0"),
        ("CC-0 1.0", "CC0-1.0"),
        ("Creative Commons Zero v1.0 Universal", "CC0-1.0"),
        ("CC0 1.0 Universal (CC0 1.0) Public Domain Dedication", "CC0-1.0"),
        ("https://creativecommons.org/publicdomain/zero/1.0/deed.fr", "CC0-1.0"),
        ("PDM", "CC-PDM-1.0"),
        ("Public Domain Mark 1.0", "CC-PDM-1.0"),
        ("http://creativecommons.org/publicdomain/mark/1.0/", "CC-PDM-1.0"),
        ("Public domain (https://creativecommons.org/publicdomain/mark/1.0/)", "CC-PDM-1.0"),
        ("pd", "LicenseRef-public-domain"),
        ("Public Domain", "LicenseRef-public-domain"),
        ("United States Government Work", "LicenseRef-US-Gov-Work"),
        # others
        ("MIT", "MIT"),
        ("The MIT License", "MIT"),
        ("https://opensource.org/licenses/MIT", "MIT"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("http://www.apache.org/licenses/LICENSE-2.0.txt", "Apache-2.0"),
        ("Free Art License 1.3", "LAL-1.3"),
        ("No known copyright restrictions", "LicenseRef-Flickr-Commons"),
        ("© 2020 A. Photographer. All rights reserved.", "LicenseRef-all-rights-reserved"),
        ("CC BY 4.0, all rights reserved", "LicenseRef-all-rights-reserved"),
        # a version that is not there is not guessed
        ("CC BY", "LicenseRef-CC-BY-unversioned"),
        ("(CC BY)", "LicenseRef-CC-BY-unversioned"),
        ("Creative Commons Attribution-ShareAlike", "LicenseRef-CC-BY-SA-unversioned"),
        ("Creative Commons Attribution 3.0 (CC BY)", "CC-BY-3.0"),
    ],
)
def test_a_text_means_one_licence(text: str, identifier: str) -> None:
    assert parse(text).id == identifier


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "   ",
        "unknown",
        "cc",
        "by",
        "by-sa",
        "Attribution",  # a licence of Wikimedia Commons, and not CC BY
        "Attribution License",
        "Creative Commons",
        "CC BY 2",  # 2.0 and 2.5 are different texts
        "CC BY 2.1",  # there are only ports of it
        "CC BY 4.0 DE",  # and none of 4.0
        "CC BY 5.0",
        "CC BY-SA-ND 4.0",
        "CC BY-BY 4.0",
        "CC NC 1.0",
        "CC BY 4.0 as stated for the set on its card; per-image owners unknown",
        "CC BY 4.0 (claimed)",
        "not CC BY 4.0",
        "no licence file",
        "CC-BY-4.0 OR MIT",
        "CC BY 3.0 https://creativecommons.org/licenses/by/4.0/",
        "CC BY 4.0 (CC BY-SA)",
        "https://creativecommons.org/licenses/by/4.0/de",
        "https://creativecommons.org/licenses/by/",
        "https://creativecommons.org/publicdomain/zero/2.0/",
        "https://creativecommons.org/publicdomain/mark/1.0/de/",
        "https://creativecommons.org.example/licenses/by/4.0/",
        "https://example.org/creativecommons.org/licenses/by/4.0/",
        "https://creativecommons.org/licenses/by/4.0/../../by-nc/4.0/",
        "GNU General Public License",
        "MIT; photos collected from the web",
        "CC BY 4.0 " * 100,
    ],
)
def test_what_is_not_certain_is_unknown(text: str | None) -> None:
    assert parse(text) is UNKNOWN


def test_unknown_and_reserved_photos_are_not_redistributable() -> None:
    assert not UNKNOWN.redistributable
    assert not ALL_RIGHTS_RESERVED.redistributable
    assert not parse("no known copyright restrictions").redistributable
    assert not parse("CC BY-NC").redistributable


@pytest.mark.parametrize("identifier", CC)
def test_creative_commons_licences_allow_verbatim_copies_and_say_what_else(identifier: str) -> None:
    licence = parse(identifier)
    assert licence.id == identifier
    assert licence.redistributable
    assert licence.attribution
    assert licence.commercial == ("-NC" not in identifier)
    assert licence.derivatives == ("-ND" not in identifier)
    assert licence.share_alike == ("-SA" in identifier)
    assert identifier.endswith(licence.version)
    assert licence.url.startswith("https://creativecommons.org/licenses/by")


@pytest.mark.parametrize("identifier", SINGLE)
def test_free_licences_allow_everything(identifier: str) -> None:
    licence = parse(identifier)
    assert licence.id == identifier
    assert licence.redistributable
    assert licence.commercial
    assert licence.derivatives
    assert licence.url.startswith("https://")


def test_only_dedications_ask_for_no_attribution() -> None:
    silent = {text for text in [*CC, *SINGLE, "pd"] if not parse(text).attribution}
    assert silent == {"CC0-1.0", "CC-PDM-1.0", "Unlicense", "pd"}


ALL_SPELLINGS = [
    *CC,
    *SINGLE,
    *(f"cc-{kind}" for kind in KINDS),
    *(f"cc-{kind} 3.0 {port}" for kind, port in itertools.product(KINDS, ("de", "igo", "jp"))),
    "unknown",
    "all rights reserved",
    "pd",
    "US government work",
    "no known copyright restrictions",
]


@pytest.mark.parametrize("text", ALL_SPELLINGS)
def test_id_name_and_address_lead_back_to_the_licence(text: str) -> None:
    licence = parse(text)
    assert parse(licence.id) == licence
    assert parse(licence.name) == licence
    if licence.url:
        assert parse(licence.url) == licence
        assert parse(f"{licence.name} ({licence.url})") == licence
    assert re.fullmatch(r"[A-Za-z0-9.-]+", licence.id), "SPDX allows no other signs"


@given(
    st.sampled_from(ALL_SPELLINGS), st.sampled_from([" ", "-", "_", "\u00a0", "  "]), st.booleans()
)
def test_case_and_separators_do_not_matter(text: str, separator: str, upper: bool) -> None:
    spelt = re.sub(r"[ -]", separator, text)
    assert parse(spelt.upper() if upper else spelt.lower()) == parse(text)


@given(st.text(max_size=200) | st.from_regex(r"(?i)(cc|by|nc|sa|nd|[0-9.]|[-_ ()/]){1,12}"))
def test_any_text_has_a_licence_that_is_its_own_fixed_point(text: str) -> None:
    licence = parse(text)
    assert parse(licence.id) == licence


@given(st.sampled_from(CC), st.text(st.characters(categories=["L"]), min_size=4, max_size=20))
@example("CC-BY-4.0", "unversioned")
@example("CC-BY-4.0", "\uff44\uff45\uff45\uff44")  # "deed" in full width
def test_a_remark_beside_a_licence_makes_it_unknown(identifier: str, remark: str) -> None:
    noise = {"unported", "generic", "universal", "deed", "international", "version", "licence"}
    word = unicodedata.normalize("NFKC", remark).casefold()
    assert (parse(f"{identifier} {remark}") is UNKNOWN) or word in noise | {"license", "scotland"}


@pytest.mark.parametrize("identifier", CC)
def test_a_licence_with_a_version_is_not_without_one(identifier: str) -> None:
    stem, _, version = identifier.rpartition("-")
    for text in (f"{identifier} unversioned", f"{stem} unversioned {version}"):
        assert parse(text) is UNKNOWN
    assert parse(f"{stem} unversioned").id == f"LicenseRef-{stem}-unversioned"


def test_spdx_lists_every_id_that_claims_to_be_listed() -> None:
    listed = pytest.importorskip("packaging.licenses._spdx").LICENSES
    ports = ("au", "at", "de", "igo", "nl", "us", "fr", "uk", "jp", "es")
    texts = [
        f"cc-{kind}-{version}-{port}"
        for kind, version, port in itertools.product(KINDS, (*VERSIONS, "2.1"), ports)
    ]
    for text in [*CC, *SINGLE, *texts]:
        licence = parse(text)
        claims = not licence.id.startswith("LicenseRef-")
        assert claims == (text.lower() in listed), text
        assert not claims or listed[text.lower()]["id"] == licence.id


def test_the_default_allow_list_is_every_licence_that_lets_photos_be_passed_on() -> None:
    ids = redistributable_ids()
    assert list(ids) == sorted(set(ids))
    assert {*CC, *SINGLE, "CC-BY-SA-3.0-DE", "LicenseRef-CC-BY-SA-2.0-DE"} < set(ids)
    for identifier in ids:
        assert parse(identifier).id == identifier
        assert parse(identifier).redistributable
    assert allow_list() == set(ids)


@given(st.sampled_from(ALL_SPELLINGS) | st.text(max_size=50))
def test_without_a_list_a_licence_is_allowed_if_it_lets_photos_be_passed_on(text: str) -> None:
    assert allowed(text) == parse(text).redistributable


def test_an_allow_list_takes_any_spelling_and_allows_nothing_else() -> None:
    entries = ("cc0", "https://creativecommons.org/licenses/by/4.0/", "CC BY-SA 3.0 de")
    assert allow_list(entries) == {"CC0-1.0", "CC-BY-4.0", "CC-BY-SA-3.0-DE"}
    assert allowed("Creative Commons Attribution 4.0 International", entries)
    assert not any(allowed(text, entries) for text in ("CC BY 3.0", "CC BY-NC 4.0", "", None))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("CC-BY-4.1", "unknown licence 'CC-BY-4.1'; did you mean CC-BY-4.0"),
        ("CC BY-SA", "unknown licence 'CC BY-SA'; did you mean CC-BY-SA-"),
        ("whatever they say", "write an SPDX id"),
        ("", "write an SPDX id"),
    ],
)
def test_an_entry_of_an_allow_list_that_would_match_nothing_is_an_error(
    entry: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        allowed("CC BY 4.0", ("CC0-1.0", entry))
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("title", "author", "page", "licence", "text"),
    [
        (
            "A dragonfly",
            "Ann Example",
            "https://example.org/1",
            "CC BY-SA 2.0",
            "“A dragonfly” by Ann Example (https://example.org/1) is licensed under CC BY-SA 2.0 "
            "(https://creativecommons.org/licenses/by-sa/2.0/).",
        ),
        (
            None,
            None,
            None,
            "CC BY 4.0",
            "Untitled photo by an author who is not named is licensed under CC BY 4.0 "
            "(https://creativecommons.org/licenses/by/4.0/).",
        ),
        (
            " two\nlines ",
            "",
            None,
            "CC0",
            "“two lines” is dedicated to the public domain under CC0 1.0 "
            "(https://creativecommons.org/publicdomain/zero/1.0/).",
        ),
        (
            None,
            "Ann",
            None,
            "PDM",
            "Untitled photo by Ann is marked with Public Domain Mark 1.0 "
            "(https://creativecommons.org/publicdomain/mark/1.0/).",
        ),
        ("A", "B", None, "pd", "“A” by B is in the public domain, as its source says."),
        ("A", "B", None, "CC BY", "“A” by B is licensed under CC BY."),
        ("A", None, None, "nobody knows", "“A” has an unknown licence."),
        ("A", "B", None, "all rights reserved", "“A” by B has all rights reserved."),
        (
            "A",
            None,
            None,
            "US Government Work",
            "“A” is a United States Government Work (https://www.usa.gov/government-copyright).",
        ),
    ],
)
def test_an_attribution_names_title_author_source_and_licence(
    title: str | None, author: str | None, page: str | None, licence: str, text: str
) -> None:
    assert attribution(title, author, page, parse(licence)) == text


@given(st.text(), st.text(), st.sampled_from(ALL_SPELLINGS))
def test_an_attribution_is_one_line_that_keeps_what_is_known(
    title: str, author: str, licence: str
) -> None:
    text = attribution(title, author, None, parse(licence))
    assert len(text.splitlines()) == 1
    for part in (title, author):
        assert " ".join(part.split()) in text
    assert parse(licence).url in text
