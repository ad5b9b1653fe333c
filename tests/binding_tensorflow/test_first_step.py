"""What a first step need not wait for."""

from pathlib import Path

from first_use import assert_nothing_is_left_to_compile

BUILD = """
import tensorflow as tf, horovod.tensorflow as hvd, hvd_adaptive.tensorflow as hva
from hvd_adaptive import TopK
hvd.init()
compression = hva.EntireModel([tf.Variable(tf.zeros([400, 300]))], TopK(100))
"""


def test_nothing_is_compiled_in_it(tmp_path: Path) -> None:
    assert_nothing_is_left_to_compile(BUILD, tmp_path)
