/* Lossless differences: floats as integers in the order of their values, and the distances between. The integer of a
 * float that is not negative is its bit pattern; below, the order of the patterns is turned around. Every pattern has
 * its own, -0.0 and NaN included, and neighbouring floats are 1 apart. */
#include "inside.h"

#define ROW 64 /* elements that are passed over together */

/* From a pattern to its integer, and back: the same function. top: the largest positive pattern. */
static inline int64_t turned(int64_t number, int64_t top) {
    int64_t outside = -(int64_t)((uint64_t)number > (uint64_t)top); /* no branch: signs are hard to predict */
    return number + (outside & (top - 2 * number));
}

static inline int64_t pattern_at(const void *patterns, int32_t bytes, int64_t i) {
    return bytes == 2 ? (int64_t)((const uint16_t *)patterns)[i] : (int64_t)((const uint32_t *)patterns)[i];
}

static inline int64_t largest_positive(int32_t bytes) { return ((int64_t)1 << (8 * bytes - 1)) - 1; }

AQ_API int64_t aq_differ(const void *old, const void *new_, int32_t bytes, int64_t count, uint32_t *index,
                         int64_t *distance) {
    int64_t found = 0, top = largest_positive(bytes);
    for (int64_t start = 0; start < count; start += ROW) {
        int64_t size = aq_least(ROW, count - start), hits = 0;
        const char *a = (const char *)old + start * bytes, *b = (const char *)new_ + start * bytes;
        uint8_t slots[ROW + 1];
        if (!memcmp(a, b, (size_t)(size * bytes))) continue;
        for (int64_t j = 0; j < size; j++) { /* without a branch for each */
            slots[hits] = (uint8_t)j;
            hits += pattern_at(a, bytes, j) != pattern_at(b, bytes, j);
        }
        for (int64_t k = 0; k < hits; k++, found++) {
            index[found] = (uint32_t)(start + slots[k]);
            distance[found] = turned(pattern_at(b, bytes, slots[k]), top) - turned(pattern_at(a, bytes, slots[k]), top);
        }
    }
    return found;
}

/* Returns how many were moved: fewer than all where one would leave the range. */
static int64_t move(void *patterns, int32_t bytes, const int64_t *index, const int64_t *distance, int64_t count,
                    int32_t sign, uint64_t *sum) {
    int64_t top = largest_positive(bytes);
    uint64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t step = sign < 0 ? 0 - (uint64_t)distance[i] : (uint64_t)distance[i];
        int64_t ordered = (int64_t)((uint64_t)turned(pattern_at(patterns, bytes, index[i]), top) + step);
        if (ordered > top || ordered < -top - 1) return i;
        uint64_t pattern = (uint64_t)turned(ordered, top);
        if (bytes == 2) ((uint16_t *)patterns)[index[i]] = (uint16_t)pattern;
        else ((uint32_t *)patterns)[index[i]] = (uint32_t)pattern;
        total += pattern;
    }
    *sum = total;
    return count;
}

AQ_API int32_t aq_move(void *patterns, int32_t bytes, const int64_t *index, const int64_t *distance, int64_t count,
                       int32_t sign, uint64_t *sum) {
    int64_t moved = move(patterns, bytes, index, distance, count, sign, sum);
    if (moved == count) return AQ_FINE;
    move(patterns, bytes, index, distance, moved, -sign, sum);
    return AQ_MOVED;
}
