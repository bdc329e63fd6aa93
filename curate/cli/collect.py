"""`curate collect`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.choices import NearDuplicates
from curate.cli.checked import Command
from curate.cli.common import Classes, Debug, Json, Strict, counts, emit, workspace
from curate.errors import UsageError, VerificationError
from curate.progress import say
from curate.sources.states import is_state

if TYPE_CHECKING:
    from pipelines.collect import Collected
    from pipelines.workspace import Workspace

#: What `--retry-failed` without a reason stands for.
_ALL = "all"

_SEARCHED = {
    "inaturalist": "Search iNaturalist for the taxa of classes, and download the photos. Options: "
    "quality_grade (research), size (large), captive, place_id, d1, d2 and others.",
    "flickr": "Search Flickr, and download the photos; needs a key in FLICKR_API_KEY. Options: "
    "size (large), tags, min_upload_date, max_upload_date and others.",
    "openverse": "Search Openverse, and download the photos; OPENVERSE_CLIENT_ID and "
    "OPENVERSE_CLIENT_SECRET, where set, widen its limits. Options: category (photograph), size, "
    "source, aspect_ratio and others.",
    "wikimedia": "Search Wikimedia Commons, and download the photos. Options: width (960), "
    "depth (2).",
    "duckduckgo": "Search DuckDuckGo's images, whose licences nobody tells; off until "
    "sources.duckduckgo is set, and it needs --allow-unknown-licence. Options: region, safe.",
}


class _OptionalReason(Command):
    """A command whose `--retry-failed` may stand without a reason."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        name = "--retry-failed"
        has_arguments = any(parameter.param_type_name == "argument" for parameter in self.params)
        if name in args:
            place = args.index(name)
            following = args[place + 1 : place + 2]
            bare = not following or following[0].startswith("-")
            # Where a file may follow, only what cannot be one is a reason.
            if bare or (has_arguments and not _is_reason(following[0])):
                args = [*args[:place], f"{name}={_ALL}", *args[place + 1 :]]
        return super().parse_args(ctx, args)


def _is_reason(text: str) -> bool:
    if is_state(text) or text == _ALL:
        return True
    return text.replace("_", "").isalnum() and not Path(text).exists()


_Searched = Annotated[
    list[str] | None,
    typer.Option(
        "--classes",
        help="The classes to search for, by wnid, name or preset, comma-separated or repeated, or "
        "@FILE with one a line. Example: --classes dragonfly,n01531178. Default: none; with "
        "--retry-failed all.",
        show_default=False,
    ),
]
_NearDuplicates = Annotated[
    NearDuplicates | None,
    typer.Option(
        "--near-duplicates",
        help="Pictures that are nearly there already: flag takes them and notes it, reject "
        "refuses them; downloads are compared by curate dedup unless refused here. Example: "
        "--near-duplicates reject. Default: the setting (flag).",
        show_default=False,
    ),
]
_AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="HOST[:PORT]",
        help="A host of an intranet or test that may be asked although its address is private or "
        "its port neither 80 nor 443; exactly that one, also after redirects. Repeatable. "
        "Example: --allow-host 127.0.0.1:8000. Default: the setting (none).",
        show_default=False,
    ),
]
_AllowUnknown = Annotated[
    bool,
    typer.Option(
        "--allow-unknown-licence",
        help="Also take photos whose licence nobody tells; they can never be released. Example: "
        "--allow-unknown-licence",
    ),
]
_RetryFailed = Annotated[
    str | None,
    typer.Option(
        "--retry-failed",
        metavar="[REASON]",
        help="Search nothing; try again what failed: all of it, or what ended in one state. "
        "Example: --retry-failed timeout. Default: failed items stay as they are.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Take in candidate images with weak labels.", no_args_is_help=True)
    group.command("folder")(folder)
    group.command("tar")(tar)
    group.command("urls", cls=_OptionalReason)(urls)
    for name, text in _SEARCHED.items():
        help_text = f"{text}\n\nExample: curate collect {name} --classes dragonfly --limit 500"
        group.command(name, cls=_OptionalReason, help=help_text)(_search_command(name))
    app.add_typer(group, name="collect")


def folder(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Class folders named by wnid or class name, or what --labels lists.",
        ),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="CSV",
            help="A table with the columns path (relative to PATH) and label, and optionally "
            "source, page, title, author, licence. Example: --labels photos.csv. Default: the "
            "class folders.",
            show_default=False,
        ),
    ] = None,
    near_duplicates: _NearDuplicates = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Take in a folder of weakly labelled photos.

    Example: curate collect folder photos --labels photos.csv
    """
    from pipelines.collect import collect_folder

    opened = workspace({"collect.near_duplicates": near_duplicates})
    _tell(opened, collect_folder(opened, path, labels), strict)


def tar(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A tar file of one class (n01440764.tar), one that holds such files or class "
            "folders, packed or not, or a folder of them.",
        ),
    ],
    classes: Classes = None,
    near_duplicates: _NearDuplicates = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Take in tar files in the layout of ImageNet-21k, without unpacking them.

    Example: curate collect tar winter21_whole.tar.gz --classes imagenet-a
    """
    from pipelines.classes import selected
    from pipelines.collect import collect_tar

    opened = workspace({"collect.near_duplicates": near_duplicates})
    wnids = selected(opened, classes) if classes else None
    _tell(opened, collect_tar(opened, path, wnids), strict)


def urls(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV, JSON Lines or Parquet with the columns url and label, and optionally page, "
            "title, author, licence, source.",
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="CLASS",
            help="The class of every address, for lists without labels. Example: --label "
            "dragonfly. Default: the list's column.",
            show_default=False,
        ),
    ] = None,
    allow_host: _AllowHost = None,
    allow_unknown_licence: _AllowUnknown = False,
    retry_failed: _RetryFailed = None,
    near_duplicates: _NearDuplicates = None,
    strict: Strict = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Download the images that a list names.

    Example: curate collect urls photos.csv
    """
    from pipelines.public import collect_urls

    opened = workspace(_options(near_duplicates, allow_host))
    collected = collect_urls(
        opened,
        path,
        label=label,
        allow_unknown_licence=allow_unknown_licence,
        retry_failed=_reason(retry_failed),
    )
    _tell(opened, collected, strict)


def _search_command(name: str) -> Callable[..., None]:
    def search(
        classes: _Searched = None,
        limit: Annotated[
            int,
            typer.Option(
                "--limit",
                min=1,
                metavar="N",
                help="Most photos a class from this source, those of earlier starts among them. "
                "Example: --limit 2000",
            ),
        ] = 500,
        query: Annotated[
            list[str] | None,
            typer.Option(
                "--query",
                metavar="TEXT",
                help="What to search for, instead of what the label space says of the class; "
                "repeatable, with exactly one class. Example: --query 'Anax junius'. Default: the "
                "label space's terms.",
                show_default=False,
            ),
        ] = None,
        option: Annotated[
            list[str] | None,
            typer.Option(
                "--option",
                metavar="NAME=VALUE",
                help="What else the source is asked, in its own words, which the text above names; "
                "repeatable. Example: --option size=large. Default: none.",
                show_default=False,
            ),
        ] = None,
        refresh: Annotated[
            bool,
            typer.Option(
                "--refresh",
                help="Ask again what had come to its end, for photos that were added since. "
                "Example: --refresh",
            ),
        ] = False,
        allow_host: _AllowHost = None,
        allow_unknown_licence: _AllowUnknown = False,
        retry_failed: _RetryFailed = None,
        near_duplicates: _NearDuplicates = None,
        strict: Strict = False,
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        from pipelines.classes import selected
        from pipelines.public import collect_public

        opened = workspace(_options(near_duplicates, allow_host))
        if not classes and retry_failed is None:
            raise UsageError("name the classes to search for: --classes dragonfly,goldfinch")
        collected = collect_public(
            opened,
            name,
            selected(opened, classes),
            limit=limit,
            queries=query or (),
            options=_named(option or ()),
            refresh=refresh,
            allow_unknown_licence=allow_unknown_licence,
            retry_failed=_reason(retry_failed),
        )
        _tell(opened, collected, strict)

    return search


def _options(
    near_duplicates: NearDuplicates | None, allow_host: list[str] | None
) -> dict[str, Any]:
    return {
        "collect.near_duplicates": near_duplicates,
        "network.allow_hosts": tuple(allow_host) if allow_host else None,
    }


def _reason(given: str | None) -> str | None:
    return "" if given == _ALL else given


def _named(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    options = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--option {text!r}: write NAME=VALUE")
        options[name.strip()] = value.strip()
    return options


def _tell(opened: Workspace, collected: Collected, strict: bool) -> None:
    """Print what a collect did; with `strict`, what was refused or failed is an error."""
    if collected.list is not None:
        collected.list = str(opened.root / collected.list)
    text = f"found {collected.found:,}: {collected.new:,} new, {collected.known:,} known"
    refused, failed = sum(collected.rejected.values()), sum(collected.failed.values())
    if refused:
        text += f", {refused:,} rejected ({counts(collected.rejected)})"
    if failed:
        text += f", {failed:,} failed ({counts(collected.failed)})"
    if collected.waiting:
        text += f", {collected.waiting:,} waiting"
    if (refused or failed) and collected.list:
        text += f"; see {collected.list}"
    if "licence" in collected.rejected:
        text += (
            "\nlicence: only photos that may be passed on are taken; --allow-unknown-licence also "
            "takes those whose licence nobody tells"
        )
    if "forbidden_address" in collected.rejected:
        text += "\nforbidden_address: --allow-host HOST:PORT exempts a host of your own"
    if failed:
        text += "\nwhat failed is tried again with --retry-failed"
    if collected.near_duplicates:
        text += f"\n{collected.near_duplicates:,} of the new ones are near-duplicates"
    emit(collected.to_dict(), text)
    for trouble in collected.troubles[1:]:
        say(str(trouble))
    if collected.troubles:
        raise collected.troubles[0]
    if strict and (refused or failed):
        number = refused + failed
        were = "item was" if number == 1 else "items were"
        raise VerificationError(f"{number:,} {were} rejected or failed")
