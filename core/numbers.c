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

/* Right to less than its last bit, so that it agrees with most C libraries. x = (1 + f) 2^k with 1 + f from sqrt(1/2)
 * to sqrt(2), and ln(1 + f) = 2 artanh t = f - f^2 / 2 + t (f^2 / 2 + 2 t^2 / 3 + 2 t^4 / 5 + ...) with
 * t = f / (2 + f), |t| < 0.172. The first two terms are kept in two parts. */
double aq_log2(double x) {
    uint64_t bits, mantissa = 0xFFFFFFFFFFFFFu;
    memcpy(&bits, &x, 8);
    int64_t upper = (bits & mantissa) > 0x6A09E667F3BCCu, k = (int64_t)(bits >> 52) - 1023 + upper;
    bits = (bits & mantissa) | (uint64_t)(1023 - upper) << 52;
    double f;
    memcpy(&f, &bits, 8);
    f -= 1;
    double t = f / (2 + f), u = t * t, v = u * u, half = 0.5 * f * f;
    /* Even and odd terms apart: they are added up at the same time. */
    double odd = 2.0 / 3 + v * (2.0 / 7 + v * (2.0 / 11 + v * (2.0 / 15 + v * (2.0 / 19))));
    double even = 2.0 / 5 + v * (2.0 / 9 + v * (2.0 / 13 + v * (2.0 / 17 + v * (2.0 / 21))));
    double rest = t * (half + (u * odd + v * even)), high = f - half;
    memcpy(&bits, &high, 8);
    bits &= ~(uint64_t)0xFFFFFFFF; /* so short that a product is exact */
    memcpy(&high, &bits, 8);
    double low = (f - high) - half + rest;
    /* 1 / ln 2, in two parts as well */
    double upper_part = 1.4426950407214463, lower_part = 1.6751713164886512e-10;
    double product = high * upper_part, small = (low + high) * lower_part + low * upper_part;
    double sum = (double)k + product;
    return sum + (small + (((double)k - sum) + product));
}
