"""Terms of the reports, each with its meaning in one sentence; `docs/glossary.md` has the same."""

import html
import re

TERMS = {
    "held-out": "Held-out episodes have seeds on which nothing was trained, validated or tuned.",
    "validation": "Validation episodes are not learned from, but choices are made on them, such as which"
    " checkpoint is the best.",
    "SPL": "Success weighted by path length (Anderson et al. 2018): 0 for an episode that fails, otherwise the steps of"
    " a straight walk to the source divided by the steps taken, as a mean over episodes.",
    "greedy": "A greedy agent always takes the action with the highest output of its network.",
    "sampled": "A sampled agent draws its action from the probabilities that its network gives.",
    "whiff": "A whiff is a step on which an antenna reads more than sensor noise explains.",
    "octant": "An octant is one of the eight 45-degree sectors from which the wind can come, as seen by the agent.",
    "value": "The value is the network's own estimate of the discounted reward that is still to come.",
    "stack": "The stack is the row of hidden layers that can grow; the output layer is not part of it.",
    "density": "Density is the share of the weights in the stack that have not been pruned.",
    "belief": "Belief in a weight rises with every epoch in which the weight is large or its unit active; weights with"
    " low belief may be pruned.",
    "saliency": "The saliency of a weight estimates what its removal costs: its absolute value, or the rise of the"
    " loss to second order (optimal brain damage).",
    "epoch": "An epoch is what passes between two decisions of the rules: a rollout, an episode, or a pass over the"
    " data.",
    "grown": "Grown: a layer was added to the network.",
    "pruned": "Pruned: weights were set to zero, and stay zero.",
    "frozen": "Frozen: a layer stopped learning.",
    "thawed": "Thawed: a frozen layer learns again.",
    "removed": "Removed: units that pruning had cut off were taken out of the network.",
    "regrown": "Regrown: pruned weights came back, at zero.",
    "undone": "Undone: a growth was reverted, because the metric did not improve.",
    "bulk": "The bulk is the range that the eigenvalues of a matrix of pure noise fill (Marchenko-Pastur law).",
    "spike": "A spike is an eigenvalue above the bulk, where noise puts one in 1 of 1,000 matrices.",
    "drift": "Drift is how far a layer's weights moved since the panel before, as a share of their norm.",
    "Kolmogorov distance": "The Kolmogorov distance of two distributions is the largest difference between their"
    " cumulative shares: 0 for the same, 1 for ones that do not overlap.",
    "plasticity": "Plasticity is a network's ability to keep learning; dead units and a falling rank are signs of its"
    " loss (Dohare et al. 2024).",
    "dead": "A dead unit is zero for every observation of a probe batch, so no gradient passes through it.",
    "dormant": "A dormant unit is active on less than 1 % of the observations.",
    "effective rank": "The effective rank of activations is the number of directions that they use, weighted by how"
    " much they use each (Roy & Vetterli 2007).",
    "IQM": "The interquartile mean is the mean of the middle half of the values, over runs.",
}
"""By term, a sentence."""

_WORD = re.compile(rf"\b({'|'.join(map(re.escape, TERMS))})s?\b", re.IGNORECASE)
_KEYS = {term.lower(): term for term in TERMS}
_NO_TERMS = ("h1", "h2", "a", "summary", "code")  # elements whose words are not linked


def link_terms(body: str) -> tuple[str, list[str]]:
    """HTML in which each term links to its definition where it first appears; and the terms that do."""
    found: list[str] = []

    def link(match: re.Match[str]) -> str:
        term = _KEYS[match[1].lower()]
        if term in found:
            return match[0]
        found.append(term)
        return f'<a class="term" href="#{_place(term)}" title="{html.escape(TERMS[term])}">{match[0]}</a>'

    parts, inside = [], 0
    for part in re.split(r"(<[^>]*>)", body):
        if part.startswith("<"):
            name = part.strip("</>").split(" ", 1)[0]
            inside += (-1 if part.startswith("</") else 1) if name in _NO_TERMS else 0
            parts.append(part)
        else:
            parts.append(part if inside else _WORD.sub(link, part))
    return "".join(parts), found


def definitions(terms: list[str]) -> str:
    """Terms with their sentences, as a list."""
    items = "".join(
        f'<div id="{_place(term)}"><dt>{html.escape(term)}</dt><dd>{html.escape(TERMS[term])}</dd></div>'
        for term in sorted(terms, key=str.lower)
    )
    return f"<dl>{items}</dl>"


def _place(term: str) -> str:
    return f"term-{term.lower().replace(' ', '-')}"
