/* total += step of the element's segment x its level: one rounding for the product, one for the sum. */
#include "vectors.h"

void aq_add_range(const aq_sum *sum, const void *values, int32_t bytes, int64_t position, int64_t stop) {
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    int64_t segment = aq_segment_at(sum->offsets, sum->segments, position), begin = position;
    for (int64_t end; position < stop; position = end) {
        while (sum->offsets[segment + 1] <= position) segment++;
        end = aq_least(stop, sum->offsets[segment + 1]);
        kernels->add_levels((const char *)values + (position - begin) * bytes, bytes, end - position,
                            sum->steps[segment], sum->total + position);
    }
}

typedef struct {
    const aq_sum *sum;
    const uint8_t *values;
    int32_t bytes;
    int64_t dimension;
} job;

static void add_tiles(void *context, int64_t first, int64_t last) {
    const job *work = context;
    aq_add_range(work->sum, work->values + first * AQ_TILE * work->bytes, work->bytes, first * AQ_TILE,
                 aq_least(last * AQ_TILE, work->dimension));
}

void aq_add_levels(const aq_sum *sum, const void *values, int32_t bytes, int64_t dimension, aq_each each) {
    job work = {sum, values, bytes, dimension};
    aq_run(each, add_tiles, &work, aq_tiles(dimension), 2);
}

void aq_add_nonzeros(const aq_sum *sum, const uint32_t *index, const int32_t *level, int64_t count) {
    int64_t segment = count ? aq_segment_at(sum->offsets, sum->segments, index[0]) : 0;
    for (int64_t i = 0; i < count; i++) {
        while (sum->offsets[segment + 1] <= (int64_t)index[i]) segment++;
        sum->total[index[i]] += sum->steps[segment] * (float)level[i];
    }
}

static void add_float_tiles(void *context, int64_t first, int64_t last) {
    const job *work = context;
    float step = *work->sum->steps, value, *total = work->sum->total;
    for (int64_t i = first * AQ_TILE; i < aq_least(last * AQ_TILE, work->dimension); i++) {
        memcpy(&value, work->values + 4 * i, 4);
        total[i] += step * value;
    }
}

void aq_add_floats(const aq_sum *sum, const uint8_t *values, int64_t dimension, aq_each each) {
    job work = {sum, values, 4, dimension};
    aq_run(each, add_float_tiles, &work, aq_tiles(dimension), 2);
}
