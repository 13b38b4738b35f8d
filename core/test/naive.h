/* A second decoder of frames with levels, for tests: written from docs/wire-format.md, slow, and sharing no code with
 * the core. */
#ifndef NAIVE_H
#define NAIVE_H

#include <stdint.h>

typedef struct { /* what a receiver of short frames knows */
    int quantizer, keyed;
    uint64_t dimension, key, segments;
    const uint64_t *lengths; /* of the segments; NULL: one norm for all */
} naive_known;

typedef struct {
    uint64_t dimension, key, segments;
    int64_t top;
    uint32_t s;
    int quantizer, codec;
    uint64_t *lengths; /* of the segments */
    float *scales;     /* of the segments */
    int32_t *values;   /* the levels */
    void *made[8];     /* what naive_free frees */
    int count;
} naive_frame;

/* Read a frame of at most `most` elements. Returns 1, or 0 where it breaks a rule. known: or NULL. */
int naive_read(const uint8_t *data, uint64_t size, uint64_t most, const naive_known *known, naive_frame *frame);
void naive_free(naive_frame *frame);
uint32_t naive_crc(const uint8_t *data, uint64_t size);

#endif
