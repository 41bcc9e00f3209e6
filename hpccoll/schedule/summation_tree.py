"""Summation trees: in which order the contributions of ranks to one element are added.

A leaf is a rank; a node adds its children, whose order does not matter, because the addition of two
floats commutes (the payloads of NaNs apart). Nearly all nodes have two children. A node with more
is a fused sum, which rounds once: sums in a wider accumulator look like that from outside.

Equal trees are one object (hash-consing), so that whether two sums have the same bits is a
comparison of references. The digest of a tree is stable: files may keep it. It is computed from
those of the children alone, for arrays of trees, too, so that a million elements need no tree.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SummationTree:
    """The order of one sum; made by ``leaf``, ``node`` and ``parse_tree``, and equal only to itself."""

    rank: int | None  # the rank of a leaf; None of a node
    children: tuple["SummationTree", ...]  # two or more, by their least rank; none of a leaf
    depth: int  # the most additions that one contribution passes through
    least: int  # the smallest rank of its leaves
    digest: int  # 64 bits

    def __str__(self) -> str:
        """Return the expression: ``((0 1) (2 3))``."""
        words: list[str] = []
        pending: list[SummationTree | str] = [self]
        while pending:
            current = pending.pop()
            if isinstance(current, str):
                words.append(current)
            elif current.rank is not None:
                words.append(str(current.rank))
            else:
                pending.append(")")
                for child in reversed(current.children):
                    pending += [child, " "]
                pending.pop()
                words.append("(")
        return "".join(words)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of its leaves, ascending."""
        leaves: list[int] = []
        pending = [self]
        while pending:
            current = pending.pop()
            if current.rank is not None:
                leaves.append(current.rank)
            pending.extend(current.children)
        return tuple(sorted(leaves))

    @property
    def has_fused_sums(self) -> bool:
        """Whether some node adds more than two at once."""
        return any(len(tree.children) > 2 for tree in self.subtrees())

    def subtrees(self) -> Iterator["SummationTree"]:
        """Yield all different subtrees, children before the nodes that add them; itself last."""
        yielded: set[SummationTree] = set()
        pending = [self]
        while pending:
            current = pending[-1]
            missing = [child for child in current.children if child not in yielded]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if current not in yielded:
                yielded.add(current)
                yield current

    def evaluate(
        self,
        values: Sequence[Value] | Mapping[int, Value],
        fold: Callable[[Value, Value], Value],
        fused: Callable[[Sequence[Value]], Value] | None = None,
    ) -> Value:
        """Return the sum in this order, such as ``tree.evaluate(arrays, np.add)``.

        Args:
            values: the contribution of each rank.
            fold: adds two values.
            fused: adds more than two at once, as a node with more children does.

        Raises:
            ValueError: if the tree has such a node, and ``fused`` is None.
        """
        sums: dict[SummationTree, Value] = {}
        for tree in self.subtrees():
            if tree.rank is not None:
                sums[tree] = values[tree.rank]
                continue
            parts = [sums[child] for child in tree.children]
            if len(parts) == 2:
                sums[tree] = fold(parts[0], parts[1])
            elif fused is None:
                raise ValueError(f"{tree} is a fused sum, whose rounding is unknown")
            else:
                sums[tree] = fused(parts)
        return sums[self]


_TREES: WeakValueDictionary[tuple[int, ...], SummationTree] = WeakValueDictionary()
"""All trees: by ``(-1, rank)``, and by the ids of the children, which live as long as their node."""


def leaf(rank: int) -> SummationTree:
    """Return the tree of a single contribution.

    Raises:
        ValueError: if the rank is negative.
    """
    if rank < 0:
        raise ValueError(f"rank {rank} is negative")
    key = (-1, rank)
    tree = _TREES.get(key)
    if tree is None:
        digest = _mixed(rank + _LEAF & _WORD)
        tree = SummationTree(rank, (), depth=0, least=rank, digest=digest)
        _TREES[key] = tree
    return tree


def node(*children: SummationTree) -> SummationTree:
    """Return the tree that adds its children, two of them, or more at once.

    Raises:
        ValueError: if there are fewer than two.
    """
    if len(children) < 2:
        raise ValueError(f"a sum has two children or more, not {len(children)}")
    ordered = tuple(sorted(children, key=lambda child: (child.least, child.digest)))
    key = tuple(map(id, ordered))
    tree = _TREES.get(key)
    if tree is None:
        total = _NODE + len(ordered) + sum(_mixed(child.digest) for child in ordered)
        depth = 1 + max(child.depth for child in ordered)
        digest = _mixed(total & _WORD)
        tree = SummationTree(None, ordered, depth, ordered[0].least, digest)
        _TREES[key] = tree
    return tree


def chain(ranks: Iterable[int]) -> SummationTree:
    """Return the tree that adds one rank after the other: ``(((0 1) 2) 3)``.

    Raises:
        ValueError: if there is no rank.
    """
    trees = [leaf(rank) for rank in ranks]
    if not trees:
        raise ValueError("a chain has at least one rank")
    total = trees[0]
    for tree in trees[1:]:
        total = node(total, tree)
    return total


_WORDS = re.compile(r"\s*(\d+|[()])")


def parse_tree(text: str) -> SummationTree:
    """Return the tree of an expression such as ``((0 1) (2 3))``.

    Raises:
        ValueError: if the text is not one expression.
    """
    levels: list[list[SummationTree]] = [[]]
    end = 0
    while text[end:].strip():
        match = _WORDS.match(text, end)
        if match is None:
            raise ValueError(f"{text[end : end + 20]!r} is not a rank, '(' or ')'")
        end = match.end()
        word = match[1]
        if word == "(":
            levels.append([])
        elif word != ")":
            levels[-1].append(leaf(int(word)))
        elif len(levels) == 1:
            raise ValueError(f"')' without '(' at character {end} of {text[:20]!r}")
        else:
            children = levels.pop()
            levels[-1].append(node(*children))
    if len(levels) > 1 or len(levels[0]) != 1:
        raise ValueError(f"{text[:20]!r} is not one expression such as ((0 1) (2 3))")
    return levels[0][0]


def leaf_digests(ranks: NDArray[np.integer]) -> Digests:
    """Return the digests of the leaves of ranks."""
    return _mixed(ranks.astype(np.uint64) + np.uint64(_LEAF))


def node_digests(*children: Digests) -> Digests:
    """Return the digests of nodes, element by element, from those of their children in any order."""
    total = np.full_like(children[0], _NODE + len(children))
    for digests in children:
        total += _mixed(digests)
    return _mixed(total)


_LEAF, _NODE = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
"""Tell leaves from nodes: odd 64-bit numbers of no structure, from the golden ratio and another root."""


_WORD = (1 << 64) - 1
"""The largest 64-bit word."""

Words = TypeVar("Words", int, Digests)


def _mixed(words: Words) -> Words:
    """Return a permutation of 64-bit words in which every bit depends on all bits.

    It is the finalizer of splitmix64: G. Steele, D. Lea, C. Flood: Fast splittable pseudorandom
    number generators, OOPSLA (2014).
    """
    mixed: Any = words  # the stubs of NumPy have no array beside such large numbers
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _WORD
    return cast("Words", mixed ^ (mixed >> 31))
