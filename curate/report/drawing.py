"""What becomes of a Matplotlib figure on a page: inline SVG that is the same bytes each time.

A page is read on a phone and on a desktop, by day and by night, and printed. So a figure is drawn
for the narrowest of them and scales, its words are text, and what is drawn in the ink takes the
colour of the text around it.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from curate.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What pip installs where drawing is wanted.
REQUIREMENT = "natadv-curate[plots]"

#: What stands for the colour of the text around a figure.
INK = "#1c1d1f"

#: Told apart by every kind of colour vision, and 3:1 or more against a white and a black page:
#: blue, vermilion, green and purple of Okabe and Ito's set, and the ink.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", INK)

# Lengths of strokes and gaps. No fifth one, so that twenty series differ in colour or dashes.
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2))

#: Width of a figure in points: at a phone's width one of them is about a pixel.
WIDTH = 340.0

#: Size of text in points.
FONT_SIZE = 10.5

_FONT = "DejaVu Sans"

_LONGEST = 48


def colour(number: int) -> str:
    """The colour of a series by its number, as Matplotlib takes it."""
    return COLOURS[number % len(COLOURS)]


def dashes(number: int) -> tuple[float, tuple[float, ...]] | str:
    """The dashes of a series by its number, as Matplotlib takes them."""
    pattern = _DASHES[number % len(_DASHES)]
    return (0.0, pattern) if pattern else "solid"


def plain(text: str, longest: int = _LONGEST) -> str:
    """Foreign text for a figure: without marks that turn its direction, and cut in the middle.

    Args:
        text: as it comes.
        longest: most signs.
    """
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[longest // 2 + 1 - longest :]}"
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def draw(
    paint: Callable[[Figure, Axes], None], alt: str, height: float, *, panels: Sequence[float] = ()
) -> str:
    """Draw a figure.

    Args:
        paint: draws into the figure; the second argument is its first or only panel.
        alt: what the figure shows, for those who do not see it.
        height: in points; its width is `WIDTH`.
        panels: heights of several panels that share an x axis, as parts of each other.

    Returns:
        An SVG element for a page in HTML, which scales to the width of its place.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    stream = io.StringIO()
    with style(alt):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        whole = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        FigureCanvasSVG(whole)
        axes: Any = whole.subplots(
            max(1, len(panels)), sharex=True, squeeze=False, height_ratios=panels or None
        )
        paint(whole, axes[0, 0])
        nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        whole.savefig(stream, format="svg", transparent=True, metadata=nothing)
    return _inline(stream.getvalue(), alt)


@contextmanager
def style(salt: str) -> Iterator[None]:
    """Draw within in the style of the pages, whatever users or other code have set.

    Args:
        salt: names within an SVG file depend on it.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError(REQUIREMENT, "a page with plots") from error
    import warnings

    ours: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    for name in ("backend", "backend_fallback", "timezone", "toolbar"):
        ours.pop(name, None)
    ours |= _STYLE | {"svg.hashsalt": sha256(salt.encode("utf-8", "replace")).hexdigest()}
    with warnings.catch_warnings():
        # Such as that the font that measures a name lacks its script; browsers have others.
        warnings.simplefilter("ignore")
        with matplotlib.rc_context(ours):
            yield


_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": [_FONT],
    "font.size": FONT_SIZE,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": FONT_SIZE,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.scale_dashes": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": FONT_SIZE - 0.5,
    "ytick.labelsize": FONT_SIZE - 0.5,
    "xtick.major.size": 0.0,
    "xtick.major.pad": 5.0,
    "ytick.major.pad": 5.0,
    "ytick.major.size": 0.0,
}


def _inline(svg: str, alt: str) -> str:
    """A file's SVG as an element of a page."""
    element = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', element)
    assert box is not None
    body = element[element.index(">") + 1 :]
    # Written for all elements of the page that it comes to stand in.
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    # Names of groups, which nothing refers to and which every figure repeats.
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = body.replace(f"'{_FONT}'", "system-ui, sans-serif")
    body = re.sub(rf"(fill|stroke): {INK}", r"\1: currentColor", body)
    body = re.sub(r"\n\s*", "\n", body)
    return f'<svg viewBox="{box[1]}" role="img" aria-label="{html.escape(alt)}">{body.strip()}'


def legend(entries: Sequence[tuple[int, str, str]]) -> str:
    """What the lines of a figure mean, in HTML, where long names wrap and none reaches further.

    Args:
        entries: of each line the number of its colour and dashes, its name, and what to add.
    """
    return f'<ul class="legend">{"".join(_entry(*entry) for entry in entries)}</ul>'


def _entry(number: int, name: str, note: str) -> str:
    stroke = colour(number).replace(INK, "currentColor")
    pattern = " ".join(f"{part:g}" for part in _DASHES[number % len(_DASHES)])
    line = f'<line x1="0" x2="26" y1="5" y2="5" style="stroke:{stroke};stroke-width:2.5'
    line += f';stroke-dasharray:{pattern}"/>' if pattern else '"/>'
    key = f'<svg class="key" viewBox="0 0 26 10" aria-hidden="true">{line}</svg>'
    told = f' <span class="muted">{html.escape(note)}</span>' if note else ""
    return f"<li>{key}<span><bdi>{html.escape(name)}</bdi>{told}</span></li>"


def figure(svg: str, title: str, legend: str = "") -> str:
    """A figure with its title and its legend, in HTML."""
    head = f"<figcaption><bdi>{html.escape(title)}</bdi></figcaption>" if title else ""
    return f'<figure class="drawing">{head}{svg}{legend}</figure>\n'
