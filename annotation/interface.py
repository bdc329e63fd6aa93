"""The pages on which people answer, as Label Studio's description of a project.

The first answer is given blind: what a model predicted is nowhere on the page, nor in the task's
data, but among other classes (`annotation.offered`) that are shown after a photo was found valid.
Every decision has a key, in the order in which it is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args
from xml.etree import ElementTree

from annotation.answers import DECISIONS, Decision, Question
from annotation.interface_taxonomy import taxonomy
from curate.errors import UnknownNameError
from curate.labels.space import LabelSpace

#: What a page is for: independent answers, the last word on disputed candidates, or which class
#: somebody sees who is told none.
Purpose = Literal["review", "adjudication", "blind"]

#: The value of "none of these": no class has it for an id.
NONE = "(none)"
NONE_KEY = "0"

#: Keys of the offered classes, in the order in which they are offered; the photo's tools have v
#: and h, and u takes a selection back.
OFFERED_KEYS = "asdfgjklzxcb"

#: Further words for a rejection: value, key, and what the page says.
REASONS: dict[str, tuple[str, str]] = {
    "too-small": ("q", "tiny or far away"),
    "hidden": ("w", "mostly covered or cut off"),
    "blurred": ("e", "blurred, dark or noisy"),
    "outside-centre": ("r", "not visible in the centre crop"),
    "text-only": ("t", "only written, a logo or a package"),
    "toy-or-picture": ("y", "a toy, a statue, a picture of it"),
    "made-up": ("i", "drawn, rendered or edited"),
    "collage": ("o", "several pictures in one"),
}

#: The reason that may stand beside a valid answer as well, and its key there: whoever evaluates by
#: the centre crop alone does not see what the photo shows.
OUTSIDE, OUTSIDE_KEY = "outside-centre", "n"

# The first step down is the group.
_SEARCH = "Type a name, then ↓ ↓ Enter; or open a group"

#: Decisions after which each question's follow-up is shown.
ALSO_AFTER: dict[Question, tuple[Decision, ...]] = {
    "misclassified": (Decision.VALID,),
    "outlier": (Decision.VALID, Decision.CLASS_VISIBLE),
}

_TOLD: dict[Question, dict[Decision, str]] = {
    "misclassified": {
        Decision.VALID: "Yes: this, clearly, and nothing else",
        Decision.WRONG_LABEL: "No, it is something else",
        Decision.SEVERAL_CLASSES: "Yes, but other things stand out as well",
        Decision.UNCLEAR: "Unclear, or too small to tell",
        Decision.NOT_A_PHOTO: "Not a photo (drawing, screenshot …)",
        Decision.NEAR_DUPLICATE: "I have seen nearly the same photo",
    },
    "outlier": {
        Decision.VALID: "No, nothing that the models know",
        Decision.CLASS_VISIBLE: "Yes, something that they know",
        Decision.UNCLEAR: "Unclear, or too small to tell",
        Decision.NOT_A_PHOTO: "Not a photo (drawing, screenshot …)",
        Decision.NEAR_DUPLICATE: "I have seen nearly the same photo",
    },
}

_ASKED: dict[Question, str] = {
    "misclassified": "Is this what the photo shows?",
    "outlier": "Does a class that the models know appear? Label:",
}

_FOLLOW_UP: dict[Question, str] = {
    "misclassified": "Is one of these also clearly there?",
    "outlier": "Which of these is clearly there?",
}

# Label Studio's panels for regions take a quarter of the page, and there are no regions here. It
# cleans a style sheet as if it were HTML: no ">".
_STYLE = """
.lsf-sidepanels { padding-left: 0 !important; padding-right: 0 !important; }
.lsf-sidepanels__wrapper { display: none; }
.curate { display: flex; gap: 20px; align-items: flex-start; }
.curate-photo { flex: 1 1 0; min-width: 0; }
.curate-side { flex: 0 0 400px; min-width: 0; }
.curate h4 { margin: 0 !important; }
.curate-ask h4 { font-size: 15px; font-weight: 500; }
.curate-claim h4 { font-size: 26px; line-height: 1.2; overflow-wrap: anywhere; }
.curate-next { margin-top: 12px; }
.curate-next h4 { font-size: 16px; }
.curate .lsf-richtext__container { font-size: 14px; line-height: 1.35; overflow-wrap: anywhere; }
.curate-definition p { margin: 4px 0 8px; max-height: 132px; overflow-y: auto; }
.curate-examples img { display: inline-block; }
.curate-votes p { margin: 0 0 2px; }
.curate-crops summary { cursor: pointer; margin-top: 8px; }
.curate-photo { position: relative; }
.curate-photo .lsf-object { padding-right: 42px; }
.curate-photo .lsf-toolbar { margin-right: -42px; }
.curate-crops .lsf-object { padding-right: 0; }
.curate-crops .lsf-object, .curate-crops .lsf-richtext__container { position: static !important; }
.curate-frame { position: absolute; top: 0; left: 0; z-index: 9; box-sizing: border-box; }
.curate-frame img { display: block; width: 100%; height: 100%; max-width: none; }
.curate-frame div { position: absolute; box-sizing: border-box; }
.curate-corner { border: 2px dashed #00e5ff; box-shadow: 0 0 0 1px #000a; }
.curate-centre { border: 3px solid #ffd400; box-shadow: 0 0 0 1px #000, inset 0 0 0 1px #000; }
.curate .lsf-choices { margin-top: 6px; }
.curate .lsf-choice__item { margin: 0; padding: 2px 0; min-height: 0; }
.curate .lsf-choice__checkbox { line-height: 1.3; align-items: flex-start; min-height: 0; }
.curate .lsf-choice__checkbox span { line-height: 1.3; }
.curate .ant-radio, .curate .ant-checkbox { top: 1px; }
.curate-two .lsf-choices { display: grid; grid-template-columns: 1fr 1fr; column-gap: 10px; }
.curate-two .lsf-choices_hidden { display: none; }
.curate .htx-taxonomy { width: 100%; }
.curate [data-testid=textarea-submit-section] { display: none; }
@media (max-width: 1000px) {
  .curate { flex-wrap: wrap; }
  .curate-photo, .curate-side { flex: 1 1 100%; }
}
"""


def review_interface(question: Question, space: LabelSpace) -> str:
    """The page of independent answers about a candidate.

    Args:
        question: what is asked.
        space: the classes that a correction and, for the rule outlier, the free choice are of.

    Returns:
        XML, the same for the same classes. Its tasks are made by `annotation.task_data`.

    Raises:
        UnknownNameError: no such question.
    """
    return _page(question, space, everything=False)


def adjudication_interface(question: Question, space: LabelSpace) -> str:
    """The page of the last word: as for review, with what others said, and all shown at once.

    Args:
        question: what is asked.
        space: the classes that a correction and the free choice are of.

    Returns:
        XML, the same for the same classes.

    Raises:
        UnknownNameError: no such question.
    """
    return _page(question, space, everything=True)


def blind_interface(space: LabelSpace) -> str:
    """The page on which somebody who is told no label picks the class.

    Args:
        space: the classes to pick from.

    Returns:
        XML, the same for the same classes.
    """
    page, _, side = _frame()
    _header(side, "Which class is this a photo of?", "curate-ask")
    picked = taxonomy(
        space,
        name="picked",
        toName="image",
        maxUsages="1",
        required="true",
        requiredMessage="Choose a class, or press 1",
        placeholder=_SEARCH,
    )
    # Nothing is to be picked by whoever cannot tell, and nothing is asked for any more.
    box = _add(side, "View", visibleWhen="choice-unselected", whenTagName="unknown")
    box.append(picked)
    unknown = _choices(side, "unknown", "single-radio")
    _choice(unknown, NONE, "1", "None of these, or I cannot tell")
    _note(side)
    return _text(page)


def _page(question: Question, space: LabelSpace, everything: bool) -> str:
    if question not in DECISIONS:
        raise UnknownNameError("question", str(question), get_args(Question))
    page, left, side = _frame()
    _html(left, "crops", "curate-crops")
    _header(side, _ASKED[question], "curate-ask")
    _header(side, "$claim", "curate-claim")
    _html(side, "definition", "curate-definition")
    _html(side, "examples", "curate-examples")
    if everything:
        _header(side, "What the annotators say")
        _html(side, "votes", "curate-votes")
    decision = _choices(
        side, "decision", "single-radio", required="true", requiredMessage="Choose an answer"
    )
    offered = [d for d in DECISIONS[question] if d is not Decision.SKIPPED]
    for place, each in enumerate(offered, start=1):
        _choice(decision, each, str(place), _TOLD[question][each])
    if question == "misclassified":
        box = _box(side, everything, [Decision.WRONG_LABEL])
        _header(box, "What is it? Leave this empty if it is none of the list.")
        box.append(
            taxonomy(
                space,
                name="corrected",
                toName="image",
                maxUsages="1",
                placeholder=_SEARCH,
            )
        )
    box = _box(side, everything, ALSO_AFTER[question], "curate-two")
    _header(box, _FOLLOW_UP[question])
    wanted = {"required": "true", "requiredMessage": f"Is one of these there? {NONE_KEY}: none"}
    _choices(box, "also", "multiple", value="$offered", **({} if everything else wanted))
    if question == "outlier":
        box.append(
            taxonomy(
                space,
                name="other",
                toName="image",
                placeholder="Another one: type a name, then ↓ ↓ Enter",
            )
        )
    if not everything:
        # An adjudicator has it among the reasons, which are hidden after a valid answer here.
        box = _box(side, everything, [Decision.VALID])
        seen = _choices(box, "centre", "multiple")
        _choice(seen, OUTSIDE, OUTSIDE_KEY, "But it is not visible in the centre crop")
    box = _box(side, everything, [d for d in offered if d is not Decision.VALID], "curate-two")
    _header(box, "Why? (as many as apply, or none)")
    reasons = _choices(box, "reasons", "multiple")
    for value, (key, told) in REASONS.items():
        _choice(reasons, value, key, told)
    _note(side)
    return _text(page)


def _frame() -> tuple[ElementTree.Element, ElementTree.Element, ElementTree.Element]:
    """A page, its side with the photo, and the other one."""
    page = ElementTree.Element("View", {"className": "curate"})
    _add(page, "Style").text = _STYLE
    left = _add(page, "View", className="curate-photo")
    _add(left, "Image", name="image", value="$image", zoom="true", zoomControl="true")
    return page, left, _add(page, "View", className="curate-side")


def _box(
    parent: ElementTree.Element, everything: bool, after: Sequence[Decision], style: str = ""
) -> ElementTree.Element:
    """What is shown after some decisions, or always."""
    look = {"className": style} if style else {}
    if everything:
        return _add(parent, "View", **look)
    values = {"whenTagName": "decision", "whenChoiceValue": ",".join(after)}
    return _add(parent, "View", visibleWhen="choice-selected", **values, **look)


def _header(parent: ElementTree.Element, text: str, name: str = "curate-next") -> None:
    box = _add(parent, "View", className=name)
    _add(box, "Header", value=text, size="5")


def _html(parent: ElementTree.Element, name: str, style: str) -> None:
    box = _add(parent, "View", className=style)
    _add(box, "HyperText", name=name, value=f"${name}", inline="true", selectionEnabled="false")


def _choices(
    parent: ElementTree.Element, name: str, choice: str, **more: str
) -> ElementTree.Element:
    return _add(parent, "Choices", name=name, toName="image", choice=choice, **more)


def _choice(parent: ElementTree.Element, alias: str, key: str, text: str) -> None:
    _add(parent, "Choice", value=text, alias=str(alias), hotkey=key)


def _note(parent: ElementTree.Element) -> None:
    _add(
        parent,
        "TextArea",
        name="note",
        toName="image",
        rows="2",
        maxSubmissions="1",
        editable="true",
        placeholder="A note, if there is something to say",
    )


def _add(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, attributes)


def _text(page: ElementTree.Element) -> str:
    ElementTree.indent(page)
    return ElementTree.tostring(page, encoding="unicode")
