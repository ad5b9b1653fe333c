"""Against the definition, one sequence at a time."""

from hypothesis import given
from hypothesis import strategies as st
from packers import LENGTHS

from hvd_adaptive.bload import pack


@given(lengths=LENGTHS, block_length=st.integers(40, 90), most=st.sampled_from([None, 1, 3]))
def test_a_block_ends_where_the_next_sequence_does_not_fit(lengths, block_length, most):
    blocks = pack(lengths, block_length, "next_fit", max_sequences_per_block=most)
    by_hand = []
    for length in blocks.lengths.tolist():
        if not by_hand or sum(by_hand[-1]) + length > block_length or len(by_hand[-1]) == most:
            by_hand.append([])
        by_hand[-1].append(length)
    assert [blocks[number].lengths.tolist() for number in range(len(blocks))] == by_hand


def test_the_order_is_random():
    orders = {tuple(pack(range(1, 9), 9, "next_fit", epoch=epoch).ids.tolist()) for epoch in range(20)}
    assert len(orders) == 20
