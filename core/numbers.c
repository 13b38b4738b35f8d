/* Numbers on the wire, and a logarithm that is the same on every machine. */
#include "inside.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are read and written as little-endian memory");

uint64_t aq_read_varint(const uint8_t *data, uint64_t place, uint64_t end, uint64_t *number, int32_t *wrong) {
    uint64_t sum = 0;
    for (int shift = 0; shift < 35; shift += 7) { /* 2^32 takes five bytes */
        if (place >= end) {
            *wrong = AQ_NUMBER_END;
            return 0;
        }
        uint64_t byte = data[place++];
        sum |= (byte & 127) << shift;
        if (byte < 128) {
            if (byte == 0 && shift) break;
            *number = sum;
            return place;
        }
    }
    *wrong = AQ_NUMBER;
    return 0;
}

/* x = m 2^k with m from sqrt(1/2) to sqrt(2); then log2 m = 2 / ln 2 artanh t with t = (m - 1) / (m + 1), |t| < 0.172.
 * What the series leaves out is below 2^-55. */
double aq_log2(double x) {
    uint64_t bits;
    double m;
    memcpy(&bits, &x, 8);
    int64_t k = (int64_t)(bits >> 52) - 1023;
    bits = (bits & 0xFFFFFFFFFFFFFu) | (uint64_t)1023 << 52;
    if ((bits & 0xFFFFFFFFFFFFFu) > 0x6A09E667F3BCCu) {
        bits -= (uint64_t)1 << 52;
        k += 1;
    }
    memcpy(&m, &bits, 8);
    double t = (m - 1) / (m + 1), u = t * t, v = u * u;
    /* Even and odd terms apart: they are added up at the same time. */
    double even = 1 + v * (1.0 / 5 + v * (1.0 / 9 + v * (1.0 / 13 + v * (1.0 / 17))));
    double odd = 1.0 / 3 + v * (1.0 / 7 + v * (1.0 / 11 + v * (1.0 / 15 + v * (1.0 / 19))));
    return (double)k + t * (even + u * odd) * 2.885390081777926814719849362;
}
