"""The formats a reply can have: what each is called on the wire, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PCM_RATE = 24_000
# RFC 3551: what telephones speak.
TELEPHONE_RATE = 8_000

MP3_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)
AAC_RATES = MP3_RATES


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A `response_format`.

    `container`, `codec`, `codec_options` and `container_options` are ffmpeg's names; without a
    `codec` the samples stay as they are. `rates` are those the codec knows (empty: any) and
    `rate` the one taken when nobody asks (None: the model's). `skip_packets` leaves out that many
    packets of encoder delay at the start. `wav_tag` puts a WAV header of that kind in front:
    1 is PCM, 6 A-law, 7 mu-law.
    """

    name: str
    media_type: str
    container: str = ""
    codec: str = ""
    rates: tuple[int, ...] = ()
    rate: int | None = None
    bit_rate: int | None = None
    skip_packets: int = 0
    wav_tag: int | None = None
    codec_options: Mapping[str, str] = field(default_factory=dict)
    container_options: Mapping[str, str] = field(default_factory=dict)

    def rate_for(self, asked: int | None, model_rate: int) -> int:
        """The rate a reply has: the one asked for, or the next one up that the codec knows."""
        wanted = asked or self.rate or model_rate
        if not self.rates:
            return wanted
        return next((rate for rate in self.rates if rate >= wanted), self.rates[-1])

    def content_type(self, sample_rate: int) -> str:
        """The reply's Content-Type; what has no header has to state its rate there."""
        if self.container in ("", "mulaw", "alaw") and self.wav_tag is None:
            return f"{self.media_type};rate={sample_rate};channels=1"
        return self.media_type


# MP3 carries no Xing header (clients join replies), so nothing tells a decoder to trim the
# encoder's delay of 46 ms. Its first packet is delay only: without the bit reservoir no other
# packet refers to it, and it is left out. ADTS has no place for trimming either; at 48 kHz the
# delay of 1,024 samples is half as long. Ogg pages hold one packet and FLAC frames 24 ms, so
# that the first sound is not kept waiting for more.
FORMATS = {
    entry.name: entry
    for entry in (
        AudioFormat(
            "mp3", "audio/mpeg", container="mp3", codec="libmp3lame", rates=MP3_RATES,
            bit_rate=96_000, skip_packets=1, codec_options={"reservoir": "0"},
            container_options={"write_xing": "0", "id3v2_version": "0"},
        ),
        AudioFormat(
            "opus", "audio/ogg", container="ogg", codec="libopus", rates=OPUS_RATES,
            bit_rate=48_000, container_options={"page_duration": "20000"},
        ),
        AudioFormat(
            "aac", "audio/aac", container="adts", codec="aac", rates=AAC_RATES, rate=48_000,
            bit_rate=96_000,
        ),
        AudioFormat(
            "flac", "audio/flac", container="flac", codec="flac",
            codec_options={"compression_level": "2"},
            container_options={"metadata_header_padding": "0"},
        ),
        AudioFormat("wav", "audio/wav", wav_tag=1),
        AudioFormat("pcm", "audio/pcm", rate=PCM_RATE),
        AudioFormat(
            "ulaw", "audio/PCMU", container="mulaw", codec="pcm_mulaw", rate=TELEPHONE_RATE
        ),
        AudioFormat(
            "alaw", "audio/PCMA", container="alaw", codec="pcm_alaw", rate=TELEPHONE_RATE
        ),
    )
}  # fmt: skip


__all__ = ["FORMATS", "AudioFormat"]
