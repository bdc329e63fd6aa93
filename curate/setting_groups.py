"""The groups of settings, each with its defaults, ranges and what it decides."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from curate.choices import (
    Backend,
    CapOrder,
    ConfidenceOf,
    Engine,
    NearDuplicates,
    Precision,
    QualityFlag,
    Views,
    Voting,
)


class Group(BaseModel):
    """What all groups share: nothing unknown, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImageLimits(Group):
    """Limits on one image, all checked before its pixels are decoded."""

    max_bytes: int = Field(30_000_000, ge=1, description="Largest file, in bytes.")
    max_pixels: int = Field(80_000_000, ge=1, description="Most pixels, by the header.")
    min_side: int = Field(72, ge=1, description="Shortest side, in pixels.")
    max_aspect_ratio: float = Field(10.0, ge=1, description="Long side over short side, at most.")
    max_metadata_bytes: int = Field(
        16_000_000, ge=1, description="Most bytes that a metadata block may unpack to."
    )


class QualitySettings(Group):
    """From where on a picture is flagged; measured when it is taken in, so these may change."""

    small_below: int = Field(160, ge=0, description="Flags `small`: the short side, in pixels.")
    contrast_below: float = Field(
        0.03, ge=0, le=0.5, description="Flags `uniform`: standard deviation of the luma."
    )
    one_tone_above: float = Field(
        0.9, ge=0, le=1, description="Flags `uniform`: share of the pixels in nearly one tone."
    )
    dark_below: float = Field(0.1, ge=0, le=1, description="Flags `dark`: mean luma.")
    bright_above: float = Field(0.9, ge=0, le=1, description="Flags `bright`: mean luma.")
    blurred_below: float = Field(0.2, ge=0, le=1, description="Flags `blurred`: sharpness.")
    aspect_above: float = Field(
        2.6,
        ge=1,
        description="Flags `odd-aspect`: long over short side. From 2.625 on the paper's crops "
        "leave strips unseen.",
    )


class FilterSettings(Group):
    """The ensemble and the rule."""

    models: tuple[str, ...] = Field(
        ("lite/efficientnet_lite0", "lite/efficientnet_lite1"),
        min_length=1,
        description="The ensemble; the first one names the confusion.",
    )
    rule: str = Field("misclassified", description="What removes a candidate.")
    threshold: float = Field(
        0.15, ge=0, le=1, description="Most probability that a view may give the true class."
    )
    cap: int = Field(15, ge=1, description="Most survivors a confusion on the shortlist.")
    cap_order: CapOrder = Field("hash", description="Which survivors of a confusion come first.")
    without: tuple[QualityFlag, ...] = Field(
        (), description="Candidates with one of these quality flags are left out."
    )
    confidence: ConfidenceOf = Field(
        "centre",
        description="Rule outlier: whose confidence counts, that of the centre crop or that of the "
        "mean softmax of the ten crops.",
    )
    min_confidence: float = Field(
        0.9,
        ge=0,
        le=1,
        description="Rule outlier: least confidence that every model must have.",
    )
    control: int = Field(
        0, ge=0, description="Candidates drawn before the filter as a control sample."
    )
    views: Views = Field("paper", description="How the ten crops are cut.")
    seed: int = Field(0, ge=0, description="Seeds the order `hash` and the control sample.")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps.")
    backend: Backend = Field(
        "auto", description="What runs the networks where they need not be exact to the last bit."
    )
    precision: Precision = Field(
        "auto", description="In which numbers, where they need not be exact to the last bit."
    )
    engine: Engine = Field("local", description="Where candidates are scored: here, or on Ray.")
    ray_address: str = Field(
        "", description="The Ray cluster to join; one of this machine's own where it is empty."
    )
    complete: bool = Field(False, description="Score every view of every image.")
    keep_logits: bool = Field(False, description="Keep the full logits beside the scores.")
    chunk: int | None = Field(
        None, ge=1, le=256, description="Candidates that pass the cascade together."
    )


class CollectSettings(Group):
    """How candidates are taken in."""

    near_duplicates: NearDuplicates = Field(
        "flag",
        description="Whether pictures that are nearly there already are taken; curate dedup finds "
        "those of downloads unless they are to be rejected.",
    )
    licences: tuple[str, ...] = Field(
        (),
        description="SPDX ids that downloads are limited to; none stands for all that allow "
        "redistribution.",
    )
    placeholder_urls: int = Field(
        3,
        ge=2,
        description="One file under so many addresses of a host stands for missing pictures.",
    )
    placeholders: str = Field(
        "",
        description="A CSV file (kind, pattern, note) of further placeholders; a path relative to "
        "the workspace.",
    )
    contact: str = Field(
        "",
        max_length=200,
        description="How site owners reach you: a mail address or a page. Sent with each request.",
    )


class NetworkSettings(Group):
    """How images are downloaded. Sources have rules of their own for their hosts."""

    connect_seconds: float = Field(
        5.0,
        gt=0,
        le=600,
        description="Longest wait for a connection, and for the look-up of a name.",
    )
    read_seconds: float = Field(10.0, gt=0, le=600, description="Longest silence of a server.")
    total_seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="Longest time for one try at an image: look-up of the name, redirects and "
        "body, but not waiting for the host's turn.",
    )
    tries: int = Field(5, ge=1, le=20, description="Attempts at one image in one start.")
    redirects: int = Field(5, ge=0, le=20, description="Most redirects of one image.")
    per_host: int = Field(2, ge=1, le=256, description="Connections to one host at a time.")
    per_second: float = Field(1.0, ge=1e-5, le=1e6, description="Requests to one host a second.")
    workers: int = Field(32, ge=1, le=512, description="Downloads at a time.")
    patience_seconds: float = Field(
        120.0, ge=0, description="A host that asks for a longer pause is left for a later start."
    )
    robots: bool = Field(True, description="Whether robots.txt and X-Robots-Tag are honoured.")
    allow_hosts: tuple[str, ...] = Field(
        (), description="HOST or HOST:PORT that address and port rules do not hold for."
    )


class SourceSettings(Group):
    """Where the sources' APIs are; to be changed for mirrors and tests."""

    inaturalist: str = "https://api.inaturalist.org/v1"
    flickr: str = "https://api.flickr.com/services/rest/"
    openverse: str = "https://api.openverse.org/v1"
    wikimedia: str = "https://commons.wikimedia.org/w/api.php"
    duckduckgo: str = Field(
        "", description='Off while empty; "https://duckduckgo.com" turns it on.'
    )


class ReviewSettings(Group):
    """The Label Studio where people look at what is on the shortlist."""

    url: str = Field(
        "",
        repr=False,
        description="The address of a Label Studio of your own, whose token CURATE_REVIEW_TOKEN "
        "holds; one of the workspace's own (curate review serve) where it is empty.",
    )
    port: int = Field(
        8090, ge=1, le=65535, description="Where curate review serve listens, on loopback."
    )
    annotators: tuple[str, ...] = Field(
        (),
        description="Mail addresses of the accounts that candidates are given to; all that curate "
        "review serve has made where it is empty.",
    )
    overlap: int = Field(
        2, ge=1, le=25, description="How many different annotators answer each candidate."
    )
    consensus: Voting = Field(
        "unanimous",
        description="How their answers add up: unanimous, majority, or weighted by how each does "
        "on gold items.",
    )
    certainty: float = Field(
        0.5,
        ge=0.5,
        lt=1.0,
        description="For weighted: the least probability at which a candidate is accepted or "
        "rejected instead of disputed.",
    )
    gold_rate: float = Field(
        0.0,
        ge=0.0,
        le=0.5,
        description="Share of each queue that are items whose right answer is known.",
    )
    lease_hours: float = Field(
        72.0,
        gt=0.0,
        le=10_000.0,
        description="After so many hours without an answer a candidate may go to somebody else.",
    )
    referee: str = Field(
        "",
        description="A model that the filter did not ask, which orders the queue; the order of the "
        "shortlist where it is empty.",
    )
    seed: int = Field(0, ge=0, description="Of who gets what, and of what is mixed in where.")
    image_url: str = Field(
        "",
        description="With review.url: an address below which people's browsers find the files of "
        "the store; photos are uploaded to Label Studio where it is empty.",
    )


class ReleaseSettings(Group):
    """What a release is published as: its card, its citation and its metadata say so."""

    title: str = Field("", max_length=200, description="The title of the data set.")
    authors: tuple[str, ...] = Field(
        (), description="Who made the data set, as it shall be cited: people or an institution."
    )
    url: str = Field(
        "",
        max_length=2000,
        pattern=r"^(https?://[^\s<>\"]+)?$",
        description="Where it is published.",
    )
