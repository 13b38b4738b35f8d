/* The dense codec's table, which choosing a codec needs too, and what is done to one state of its rANS.
 *
 * A state x lies in [2^15, 2^31) and moves 16 bits at a time (Duda, "Asymmetric numeral systems", 2013, the range
 * variant). To write a symbol, x = q f + r becomes
 *
 *     ((q 2^e + raw) 2^12) + start + r
 *
 * The symbol's interval of 2^e symbols has f of 4096 slots, from `start` on. `raw` is the symbol's place in the
 * interval. Words are written forwards and read backwards. So neither side has to know beforehand how many words a
 * vector of states takes.
 */
#ifndef AQ_DENSE_H
#define AQ_DENSE_H

#include "vectors.h"

#define AQ_SLOT_BITS 12
#define AQ_SLOTS (1 << AQ_SLOT_BITS)
#define AQ_FLOOR 32768u /* every state starts here, and so ends here when it is read back */
#define AQ_MOST_WIDTH 3 /* of an interval: a state then needs one word at most */
#define AQ_WIDEST 16    /* bits: an interval of 2^16 levels, whose low bits are behind the streams */
#define AQ_LONG 16384   /* elements from which pairs are counted */
#define AQ_LANES 64     /* states of a stream, at most */
#define AQ_REMEMBERED 128

/* Which levels occur, in ascending order, and how often; of pairs how often each occurs, where levels are small. */
typedef struct {
    int64_t dimension, top, levels;
    int32_t *level;
    int64_t *elements;
    int32_t largest; /* level of the pairs that were counted; 0 where they were not */
    uint32_t pairs[256]; /* of levels a and b: at (a & 15) + 16 (b & 15) */
    double bits[AQ_REMEMBERED]; /* of each of so many elements of one kind, or -1 */
} aq_census;

/* Which interval of 2^width levels, from `lowest` on, has how many slots; pairs: the largest level of one, or 0. The
 * symbol of a pair is its two bytes, the first element's first: reading writes both at once. */
typedef struct {
    int32_t count, pairs;
    int32_t *lowest;
    uint8_t *width;
    uint16_t *frequency;
    int64_t *elements; /* where the table is made, not read */
} aq_table;

/* How a vector would be written. */
struct aq_dense_plan {
    aq_table table;
    int32_t lanes, exponent;
    uint8_t *head;
    uint64_t head_size;
    double size; /* of the body, about; within 0.5 % of large ones */
};

static inline int64_t aq_symbols(int64_t dimension, int32_t pairs) { return pairs ? (dimension + 1) / 2 : dimension; }

/* -- dense_table.c */
/* pairs: whether they are counted where levels are small. The lists are taken from the arena. */
int32_t aq_count(const void *values, int32_t bytes, int64_t dimension, int64_t top, int32_t pairs, aq_census *census,
                 aq_arena *arena, aq_each each, aq_error *error);
double aq_entropy(aq_census *census); /* bits; aq_dense_choose comes after it */
int32_t aq_dense_choose(aq_census *census, double entropy, aq_dense_plan *plan, aq_arena *arena, aq_error *error);
uint64_t aq_table_number(const uint8_t *body, uint64_t size, uint64_t place, uint64_t *number, aq_error *error);
int32_t aq_table_take(aq_table *table, int64_t top, aq_arena *arena); /* whether there is memory for one */
/* Returns the place behind the table, or 0 where there is none. */
uint64_t aq_table_read(const uint8_t *body, uint64_t size, uint64_t place, int64_t top, aq_table *table,
                       aq_error *error);
int32_t aq_table_largest(const aq_table *table); /* magnitude of a level that the table can express, at least 1 */

/* -- dense.c */
int64_t aq_dense_write_planned(const void *values, int32_t bytes, int64_t dimension,
                               const aq_dense_plan *plan, uint8_t *body, uint64_t room, aq_arena *arena, aq_each each,
                               aq_error *error);

/* -- dense_vectors.c: whole rounds of 4, 16 or 64 states */
typedef struct {
    /* Write rounds, the last one first; symbols of 1 or 2 bytes. Returns the next free word; up to 16 words from it on
     * may have been written to. */
    uint16_t *(*encode)(const void *symbols, int32_t bytes, int64_t rounds, int32_t lanes, int32_t lowest,
                        const uint64_t *rows, uint32_t *states, uint16_t *words);
    /* Read rounds while there are words for one; symbols of 1, 2 or 4 bytes. The next word is before *place, the first
     * one at 0. Returns how many rounds were read. At least 32 bytes follow the words. */
    int64_t (*decode)(const uint8_t *words, int64_t *place, const uint64_t *slots, uint32_t *states, void *symbols,
                      int32_t bytes, int64_t rounds, int32_t lanes);
} aq_dense_kernels;
AQ_DECLARE(aq_dense_kernels, aq_dense_rounds);

/* What writing takes for a symbol: a float that is a little less than 1 / f, f - 1 (12 bits), start + raw 2^12 (16
 * bits) and e. */
static inline uint64_t aq_row(int64_t start, int64_t raw, int64_t width, int64_t frequency) {
    float reciprocal = 1.0f / (float)frequency * (float)(1 - 1.0 / (1 << 22));
    uint32_t bits;
    memcpy(&bits, &reciprocal, 4);
    uint64_t bias = (uint64_t)(start + (raw << AQ_SLOT_BITS));
    return ((uint64_t)(frequency - 1) | bias << 12 | (uint64_t)width << 28) << 32 | bits;
}

static inline uint32_t aq_encode_symbol(uint32_t x, uint64_t row, uint16_t **words) {
    uint32_t parameters = (uint32_t)(row >> 32), bits = (uint32_t)row, e = parameters >> 28;
    uint32_t f = (parameters & 4095) + 1, full = x >= f << (19 - e); /* no branch: it could not be predicted */
    float reciprocal;
    memcpy(&reciprocal, &bits, 4);
    **words = (uint16_t)x;
    *words += full;
    x >>= 16 * full;
    uint32_t q = (uint32_t)(int32_t)((float)(int32_t)x * reciprocal); /* below 2^19: right, or one less */
    q += x - q * f >= f;
    return (q << (AQ_SLOT_BITS + e)) + (parameters >> 12 & 65535) + (x - q * f);
}

/* What reading takes for a slot: frequency, place among its interval's (16 bits each), the interval's lowest symbol and
 * width. Returns the symbol; the state then needs a word where it is below the floor. */
static inline int32_t aq_decode_symbol(uint32_t *x, uint64_t slot) {
    uint32_t share = (uint32_t)slot, e = (uint32_t)(slot >> 32) & 7, rest = *x >> AQ_SLOT_BITS, q = rest >> e;
    *x = (share & 65535) * q + (share >> 16);
    return ((int32_t)(uint32_t)(slot >> 32) >> 3) + (int32_t)(rest - (q << e));
}

static inline uint32_t aq_word(const uint8_t *words, int64_t place) {
    uint16_t word;
    memcpy(&word, words + 2 * place, 2);
    return word;
}

#endif
