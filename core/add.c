/* total += step of the element's segment x its level: one rounding for the product, one for the sum. */
#include "vectors.h"

typedef struct {
    const void *values;
    int32_t bytes;
    int64_t dimension, segments;
    const int64_t *offsets;
    const float *steps;
    float *total;
} job;

static void add_tiles(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_fixed_kernels *kernels = AQ_PICK(aq_fixed_kernels);
    int64_t position = first * AQ_TILE, stop = aq_least(last * AQ_TILE, work->dimension);
    int64_t segment = aq_segment_at(work->offsets, work->segments, position);
    for (int64_t end; position < stop; position = end) {
        while (work->offsets[segment + 1] <= position) segment++;
        end = aq_least(stop, work->offsets[segment + 1]);
        kernels->add_levels((const char *)work->values + position * work->bytes, work->bytes, end - position,
                            work->steps[segment], work->total + position);
    }
}

void aq_add_levels(const void *values, int32_t bytes, int64_t dimension, const int64_t *offsets, int64_t segments,
                   const float *steps, float *total, aq_each each) {
    job work = {values, bytes, dimension, segments, offsets, steps, total};
    aq_run(each, add_tiles, &work, (dimension + AQ_TILE - 1) / AQ_TILE, 2);
}

void aq_add_nonzeros(const uint32_t *index, const int32_t *level, int64_t count, const int64_t *offsets,
                     int64_t segments, const float *steps, float *total) {
    int64_t segment = count ? aq_segment_at(offsets, segments, index[0]) : 0;
    for (int64_t i = 0; i < count; i++) {
        while (offsets[segment + 1] <= (int64_t)index[i]) segment++;
        total[index[i]] += steps[segment] * (float)level[i];
    }
}

static void add_float_tiles(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const uint8_t *values = work->values;
    float step = *work->steps, value, *total = work->total;
    for (int64_t i = first * AQ_TILE; i < aq_least(last * AQ_TILE, work->dimension); i++) {
        memcpy(&value, values + 4 * i, 4);
        total[i] += step * value;
    }
}

void aq_add_floats(const uint8_t *values, int64_t dimension, float step, float *total, aq_each each) {
    job work = {.values = values, .dimension = dimension, .steps = &step, .total = total};
    aq_run(each, add_float_tiles, &work, (dimension + AQ_TILE - 1) / AQ_TILE, 2);
}
