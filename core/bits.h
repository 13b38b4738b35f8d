/* Strings of bits, lowest bit of each byte first. */
#ifndef AQ_BITS_H
#define AQ_BITS_H

#include "inside.h"

/* Bytes of a varint. */
static inline uint64_t aq_varint_size(uint64_t number) { return (uint64_t)aq_floor_log2(number | 1) / 7 + 1; }

static inline uint64_t aq_ones(int64_t n) { return ((uint64_t)1 << n) - 1; } /* n < 64 */

/* Writes at most 56 bits at a time, 8 bytes with every code. */
typedef struct {
    uint8_t *out;
    uint64_t bits; /* that do not fill a byte yet */
    int64_t filled;
} aq_bits;

static inline void aq_put(aq_bits *b, uint64_t code, int64_t length) {
    b->bits |= code << b->filled;
    memcpy(b->out, &b->bits, 8);
    b->filled += length;
    b->out += b->filled >> 3;
    b->bits >>= b->filled & ~(int64_t)7;
    b->filled &= 7;
}

/* The 57 bits from `position` on, or more; beyond the end there are zeros. */
static inline uint64_t aq_look(const uint8_t *data, uint64_t size, uint64_t position) {
    uint64_t at = position >> 3, bits = 0;
    if (at + 8 <= size)
        memcpy(&bits, data + at, 8);
    else
        for (uint64_t j = at; j < size; j++) bits |= (uint64_t)data[j] << (8 * (j - at));
    return bits >> (position & 7);
}

#endif
