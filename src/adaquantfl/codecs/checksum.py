"""CRC-32, the checksum of a frame. With isal (the extra `speed`) it takes a quarter of the standard library's time."""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
