/* A random rotation that both sides can make: random signs, then a Walsh-Hadamard transform, block by block. */
#include "vectors.h"

#define SIGNS 0x6A09E667BB67AE85u /* the roots of 2 and 3: sets the signs' stream apart from the rounding's */

typedef struct {
    const float *x;
    const int64_t *offsets;
    uint64_t key;
    int32_t forward;
    float *out;
} job;

static void turn_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_rotate_kernels *kernels = AQ_PICK(aq_rotate_kernels);
    for (int64_t b = first; b < last; b++) {
        int64_t begin = work->offsets[b];
        uint32_t place = (uint32_t)begin * AQ_WEYL + (uint32_t)work->key;
        kernels->turn(work->x + begin, work->offsets[b + 1] - begin, place, (uint32_t)(work->key >> 32), work->forward,
                      work->out + begin);
    }
}

AQ_API void aq_rotate(const float *x, const int64_t *offsets, int64_t segments, uint64_t key, int32_t forward,
                      float *out, aq_each each) {
    job work = {x, offsets, key ^ SIGNS, forward, out};
    aq_run(each, turn_blocks, &work, segments, 4);
}
