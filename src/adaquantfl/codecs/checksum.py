"""CRC-32, the checksum of a frame: isal's where it is installed (the extra `speed`), which is faster than zlib's."""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
