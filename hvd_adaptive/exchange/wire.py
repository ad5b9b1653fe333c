"""How a payload lies in memory when it travels by itself: one contiguous buffer of 8-byte words.

Floats come first, the widest first, so that each may be viewed in its dtype; then codes, packed; the last word is filled up with
zeros. If ranks may keep different numbers of elements, a header of one word tells how many. A rank whose gradient was not finite
sends a buffer of another length than it should, or a header of -1: every rank notices, and none has to look at values. Where only
the rank's device knows, and no length depends on it, every buffer has that header, and what follows is sent in any case.
"""

from dataclasses import replace

from hvd_adaptive.compress.base import Field, Payload, dtype_bits
from hvd_adaptive.ops import Array, Ops, ascending
from hvd_adaptive.ops.packing import packed_size
from hvd_adaptive.ops.verdicts import Verdict, is_read, opposite, read, spoilt

_WORD = 8
"""Bytes."""


def told(ops: Ops, payload: Payload, healthy: Verdict) -> Verdict:
    """``healthy`` as :func:`pack` takes it: read, at once, where the payload's length has been waited for anyway."""
    return read(ops, [healthy])[0] if _counted(payload) else healthy


def pack(ops: Ops, payload: Payload, *, healthy: Verdict = True) -> Array:
    """``i64[words]`` that :func:`unpack` understands."""
    like = payload.fields[0].array
    if healthy is False:
        return _one(ops, -1, like) if _counted(payload) else ops.zeros(1 if _words(ops, payload) > 1 else 2, "int64", like=like)
    parts = [_bytes(ops, payload.fields[number]) for number in _order(ops, payload)]
    if _counted(payload) or not is_read(healthy):
        parts.insert(0, ops.to_bytes(spoilt(ops, _one(ops, payload.kept, like), healthy, -1)))
    missing = -sum(ops.size(part) for part in parts) % _WORD
    return ops.from_bytes(ops.concat([*parts, ops.zeros(missing, "uint8", like=like)]), "int64")


def unpack(
    ops: Ops, words: Array, ranks: int, template: Payload, *, flagged: bool = False
) -> tuple[list[Payload] | None, Verdict]:
    """The payloads of ``ranks`` ranks from their joined buffers, laid out as ``template``, and whether all were healthy.

    Where that is known, and one was not, there are none; where it is not, what such a rank sent is as good as the others'.

    Args:
        flagged: True if :func:`pack` was given a verdict that nobody had read.
    """
    raw = ops.to_bytes(words)
    if not _counted(template):
        stride = flagged + _words(ops, template)
        if ops.size(words) != ranks * stride:
            return None, False
        bytes_of = (ops.slice(raw, _WORD * (rank * stride + flagged), _WORD * (rank + 1) * stride) for rank in range(ranks))
        payloads = [_unpack(ops, one, template) for one in bytes_of]
        if not flagged:
            return payloads, True
        return payloads, opposite(ops.any(ops.take(words, ops.arange(ranks, words) * stride) < 0))
    payloads, start, healthy = list[Payload](), 0, True
    for _ in range(ranks):
        kept = int(ops.to_numpy(ops.slice(words, start, start + 1))[0])
        stop = start + (_words(ops, template, kept) if kept >= 0 else 1)
        if kept >= 0:
            payloads.append(_unpack(ops, ops.slice(raw, _WORD * (start + 1), _WORD * stop), replace(template, kept=kept)))
        healthy, start = healthy and kept >= 0, stop
    return payloads if healthy else None, healthy


def _unpack(ops: Ops, raw: Array, template: Payload) -> Payload:
    """The payload that lies in ``raw``; it has the layout, and keeps as many elements, as ``template``."""
    fields, start = list(template.fields), 0
    for number in _order(ops, template):
        field = template.fields[number]
        length = template.kept if field.counted else ops.size(field.array)
        stop = start + _nbytes(ops, field, length)
        part, dtype = ops.slice(raw, start, stop), ops.dtype(field.array)
        if field.below:
            array = ops.decode_positions(part, length, field.below)
        else:
            array = ops.unpack(part, field.bits, length, dtype) if _packed(ops, field) else ops.from_bytes(part, dtype)
        fields[number], start = field._replace(array=array), stop
    return replace(template, fields=tuple(fields))


def _words(ops: Ops, payload: Payload, kept: int | None = None) -> int:
    """Length of the buffer of a payload like this one that keeps ``kept`` elements."""
    kept = payload.kept if kept is None else kept
    lengths = [kept if field.counted else ops.size(field.array) for field in payload.fields]
    exact = sum(_nbytes(ops, field, length) for field, length in zip(payload.fields, lengths, strict=True))
    return -(-exact // _WORD) + _counted(payload)


def _counted(payload: Payload) -> bool:
    return any(field.counted for field in payload.fields)


def _order(ops: Ops, payload: Payload) -> list[int]:
    """The order in which fields lie in the buffer: none then starts where its dtype may not."""
    return sorted(
        range(len(payload.fields)), key=lambda number: (_packed(ops, payload.fields[number]), -payload.fields[number].bits)
    )


def _packed(ops: Ops, field: Field) -> bool:
    return field.below > 0 or field.bits != dtype_bits(ops.dtype(field.array))


def _nbytes(ops: Ops, field: Field, length: int) -> int:
    if field.below:
        return ascending.coded_size(length, field.below)
    return packed_size(length, field.bits) if _packed(ops, field) else length * field.bits // 8


def _bytes(ops: Ops, field: Field) -> Array:
    if field.below:
        return ops.encode_positions(field.array, field.below)
    return ops.pack(field.array, field.bits) if _packed(ops, field) else ops.to_bytes(field.array)


def _one(ops: Ops, value: int, like: Array) -> Array:
    return ops.full_like(ops.zeros(1, "int64", like=like), value)
