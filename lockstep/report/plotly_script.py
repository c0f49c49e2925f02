"""plotly.js, which draws the curves of a page. The only file that imports plotly."""

from __future__ import annotations

from lockstep.errors import UserError


def script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError("--html needs plotly: pip install 'lockstep-train[report]'") from None
    text: str = get_plotlyjs()
    return text
