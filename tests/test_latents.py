"""The peer's voice files, against bits set by hand."""

import numpy as np
import pytest

from engine.errors import InvalidRequest
from engine.latents import pack_rvq, pack_spk, unpack_rvq, unpack_spk


def codes(groups=16, frames=9, size=2048, seed=0):
    return np.random.RandomState(seed).randint(0, size, (groups, frames))


def test_a_vector_is_its_little_endian_floats():
    assert pack_spk(np.array([1.0, -2.0])) == bytes.fromhex("0000803f 000000c0")
    np.testing.assert_array_equal(unpack_spk(bytes.fromhex("0000803f 000000c0")), [1.0, -2.0])


def test_codes_are_packed_from_the_lowest_bit_row_after_row():
    # 11 bits each: 1 -> bit 0; 2 -> bit 12; 1024 -> bit 32; 2047 -> bits 33 to 43.
    packed = pack_rvq(np.array([[1, 2], [1024, 2047]]))
    assert int.from_bytes(packed, "little") == 1 | 1 << 12 | 1 << 32 | 0x7FF << 33
    assert len(packed) == 6
    np.testing.assert_array_equal(unpack_rvq(packed, groups=2), [[1, 2], [1024, 2047]])


@pytest.mark.parametrize(
    ("groups", "frames", "size"), [(16, 1, 2048), (16, 250, 2048), (4, 7, 64), (9, 3, 100)]
)
def test_codes_come_back_as_they_were(groups, frames, size):
    given = codes(groups, frames, size)
    back = unpack_rvq(pack_rvq(given, size), groups, size)
    assert back.dtype == np.int64
    np.testing.assert_array_equal(back, given)


@pytest.mark.parametrize("data", [b"", b"\0" * 5])
def test_a_vector_of_no_whole_number_of_values_is_refused(data):
    with pytest.raises(InvalidRequest, match="4 bytes per value") as caught:
        unpack_spk(data)
    assert caught.value.field == "spk"


def test_a_vector_of_another_width_is_refused_with_the_right_one():
    with pytest.raises(InvalidRequest, match="holds 3 values; the model's voices have 4"):
        unpack_spk(b"\0" * 12, width=4)


def test_a_vector_that_is_not_finite_is_refused():
    with pytest.raises(InvalidRequest, match="not finite"):
        unpack_spk(np.array([np.nan], "<f4").tobytes())


@pytest.mark.parametrize("data", [b"", b"\0" * 21, b"\0" * 23, b"\0" * 43])
def test_codes_of_no_whole_number_of_frames_are_refused(data):
    with pytest.raises(InvalidRequest, match="no frames of 16 codes of 11 bits") as caught:
        unpack_rvq(data)
    assert caught.value.field == "rvq"


def test_codes_the_codebook_does_not_have_are_refused_both_ways():
    with pytest.raises(InvalidRequest, match=r"outside 0\.\.99"):
        pack_rvq(np.full((4, 2), 100), 100)
    with pytest.raises(InvalidRequest, match=r"outside 0\.\.99"):
        unpack_rvq(pack_rvq(np.full((4, 2), 100), 128), 4, 100)
    with pytest.raises(InvalidRequest, match="integers"):
        pack_rvq(np.zeros((4, 2)))
