"""What the card, the citation and the Croissant metadata of a release say in the same words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from curate.licences import parse
from curate.release.bias_words import bias_sentences
from curate.release.layout import IMAGENET_O
from curate.release.markdown import one_line
from curate.release.rows import Released
from curate.release.splits import CONTROL
from curate.sources.protocol import LOCAL_SOURCES

#: The days on which photos of a source were collected.
_SEEN = ("first_seen", "last_seen")


class Words:
    """The sentences about a release.

    Args:
        record: what `release.json` holds.
        rows: of the manifest.
    """

    def __init__(self, record: Mapping[str, Any], rows: Sequence[Released]) -> None:
        self.record, self.rows = record, rows
        self.is_outlier = record.get("layout") == IMAGENET_O
        self.reviewed = bool(record["reviewed"])
        self.review: Mapping[str, Any] = record.get("review") or {}
        self._named: Mapping[str, Any] = record.get("published_as") or {}

    @cached_property
    def title(self) -> str:
        """What it is called."""
        kind = "Out-of-distribution photos" if self.is_outlier else "Natural adversarial photos"
        known = one_line(self._named.get("title")) or kind
        return known if self.reviewed else f"UNREVIEWED: {known}"

    @cached_property
    def authors(self) -> list[str]:
        """Who made the data set; not who took the photos."""
        named = [one_line(name) for name in self._named.get("authors") or ()]
        return [name for name in named if name] or ["The makers of this data set"]

    @property
    def url(self) -> str:
        """Where it is published; empty where nobody says."""
        return one_line(self._named.get("url"))

    @property
    def published(self) -> str | None:
        """The day of the last answer of a reviewer: nothing here tells when it was built."""
        return self.review.get("last_day")

    @cached_property
    def keywords(self) -> list[str]:
        """Words to find it by."""
        kind = ["imagenet-o", "out-of-distribution"] if self.is_outlier else ["imagenet-a"]
        return [*kind, "natural-adversarial-examples", "robustness", "image-classification"]

    @cached_property
    def description(self) -> str:
        """Two or three sentences."""
        counts = self.record["counts"]
        size = f"{counts['images']:,} unmodified photos in {counts['classes']:,} class folders"
        models = ", ".join(model["name"] for model in self.record["models"])
        beside = counts.get("by_split", {}).get(CONTROL, 0)
        rule = f"because the selecting models ({models}) get every one of ten crops wrong"
        if self.record.get("split") == "control":
            what = f"{size}: a control sample, drawn by lot before any model filtered."
        elif self.is_outlier:
            what = (
                f"{size}: each shows a concept outside the classes that the selecting models "
                f"({models}) were trained on, and they confidently take it for one of those."
            )
        elif beside:
            what = (
                f"{size}. {counts['images'] - beside:,} of them were chosen {rule}; the other "
                f"{beside:,} are a control sample, drawn by lot before any model looked."
            )
        else:
            what = f"{size}, chosen {rule}."
        if not self.reviewed:
            return f"UNREVIEWED, its labels confirmed by nobody. {what} Not for publication."
        if self.is_outlier:
            return f"{what} People have looked at each, and found no class that the models know."
        return f"{what} People have confirmed the label of each."

    @cached_property
    def citation(self) -> str:
        """The reference as one line."""
        year = f" ({self.published[:4]})" if self.published else ""
        where = f" {self.url}" if self.url else ""
        title = self.title.rstrip(".")
        return f"{', '.join(self.authors)}{year}. {title}, version {self.record['version']}.{where}"

    @cached_property
    def licences(self) -> dict[str, int]:
        """Images by SPDX id, the most frequent first."""
        counted = Counter(row.licence for row in self.rows)
        return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0])))

    @cached_property
    def rights(self) -> dict[str, int]:
        """Images with a licence to pass them on, but not commercially, not altered, or only alike.

        Where no such licence is known there is no term either.
        """
        told = {name: parse(name) for name in self.licences}
        known = [told[row.licence] for row in self.rows if told[row.licence].redistributable]
        return {
            "not for commercial use": sum(not one.commercial for one in known),
            "no altered copies": sum(not one.derivatives for one in known),
            "altered copies under the same licence": sum(one.share_alike for one in known),
        }

    @cached_property
    def selecting(self) -> list[dict[str, str]]:
        """Every model that took part in choosing, the referees included."""
        models = [
            {"name": m["name"], "fingerprint": m["fingerprint"], "part": "filter"}
            for m in self.record["models"]
        ]
        return models + [
            {**referee, "part": "order of review"} for referee in self.review.get("referees", ())
        ]

    @cached_property
    def searched(self) -> list[str]:
        """The sources that are not the makers' own folders and archives, by name."""
        sources = {one["source"] for one in self.record.get("sources", ())}
        return sorted(sources - LOCAL_SOURCES)

    @property
    def _origin(self) -> str:
        own = len(self.searched) < len({one["source"] for one in self.record.get("sources", ())})
        places = ["the makers' own folders and archives"] if own or not self.searched else []
        if self.searched:
            places.append("what people have published under open licences")
        return " and ".join(places)

    @cached_property
    def limits(self) -> list[str]:
        """What whoever uses it must know, a sentence or two each."""
        wrong = "confident on these photos" if self.is_outlier else "wrong on these photos"
        drawn = self.record["counts"].get("by_split", {}).get(CONTROL)
        but = " (but for the control sample)" if drawn else ""
        told = [
            f"Selection bias: every model that took part in choosing is {wrong}{but} by "
            "construction, and models related to it are at a disadvantage. Neither their accuracy "
            "nor their rank says how good they are; a referee that ordered the review is such a "
            "model too.",
            f"The photos come from {self._origin}, under labels that nobody had checked: subjects, "
            "places and styles are as uneven as these sources.",
        ]
        if self.is_outlier:
            told.append(
                "A photo may show, small or at its edge, a class that the models know and that "
                "nobody noticed."
            )
            told.append(
                "Concepts are as collected: reviewers were asked whether a class that the models "
                "know appears, and not whether a photo shows its concept."
            )
        else:
            told.append(
                "Labels are confirmed one by one, yet a photo may show a further class that nobody "
                "noticed; a model that names it counts as wrong."
            )
        if not self.record.get("selection", {}).get("require_visible"):
            told.append(
                "What a photo shows need not be in the centre crop that most evaluations look at."
            )
        if not self.review.get("human_accuracy"):
            told.append("How well people name these photos without the label was not measured.")
        small = sum(count < 10 for count in self.record["counts"]["by_class"].values())
        if small:
            have = "class has" if small == 1 else "classes have"
            told.append(
                f"{small:,} {have} fewer than 10 photos: report no number for a single class."
            )
        return told

    def responsible(self) -> dict[str, Any]:
        """The terms of Croissant RAI to which there is an answer, without their prefix."""
        keeps = (
            "that it confidently takes for a class that they do not show"
            if self.is_outlier
            else "of which it gets every crop wrong"
        )
        places = f" ({', '.join(self.searched)})" if self.searched else ""
        days = [one[at] for one in self.record.get("sources", ()) for at in _SEEN if at in one]
        measured = self.record.get("selection_bias")
        bias = bias_sentences(measured) if measured else []
        told: dict[str, Any] = {
            "dataCollection": f"Photos with weak labels from {self._origin}{places}; an ensemble "
            f"of classifiers keeps those {keeps}.",
            "dataCollectionType": [
                "Web Scraping" if self.searched else "Others",
                *(["Manual Human Curation"] if self.reviewed else []),
            ],
            "dataPreprocessingProtocol": [
                "Original bytes; positions, owners and serial numbers are removed from metadata, "
                "and formats that loaders do not list become PNG of the same pixels."
                if self.record.get("metadata") != "keep"
                else "Original bytes; formats that loaders do not list become PNG."
            ],
            "dataUseCases": ["Testing", "Validation"],
            "dataBiases": [*self.limits[:2], *bias],
            "dataLimitations": self.limits[2:],
            "personalSensitiveInformation": [
                "Photos may show people; nobody was asked to look for them. Positions in metadata "
                f"remain in {self.record['counts']['notes'].get('has-gps', 0):,} files."
            ],
            "dataReleaseMaintenancePlan": "Versions never change. A photo that is taken back is in "
            "no later version; tombstones.csv names it.",
        }
        if days:
            told["dataCollectionTimeframe"] = [min(days), max(days)]
        if self.reviewed:
            review = self.review
            needed = review["answers_needed"]
            by = "1 person who does" if needed == 1 else f"{needed:,} people who do"
            told["dataAnnotationProtocol"] = (
                f"Each photo is judged by {by} not know what a model predicted; answers add up by "
                f"the rule {review['consensus']}, and disputed ones are adjudicated."
            )
            told["dataAnnotationPlatform"] = ["Label Studio"]
            told["annotationsPerItem"] = str(review["answers_needed"])
        return told
