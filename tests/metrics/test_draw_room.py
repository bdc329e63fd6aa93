"""Room for what a draw looks at: made once, whatever is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from curate.metrics.draws import Urn


@pytest.mark.parametrize("n", [1, 8193, 16_385, 131_073, 300_000, 2_500_000])
def test_what_is_drawn_is_not_copied_to_make_room_for_more(n: int) -> None:
    urn, random = Urn(n), np.random.RandomState(n)
    room = urn._words
    for _ in range(2):
        urn.draw(random)
    assert urn._words is room
