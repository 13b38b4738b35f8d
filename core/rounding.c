/* The other quantizers' rounding, segment by segment: aq.h says which they are. */
#include "vectors.h"

#define TINY_INVERSE 0x1p90 /* a segment with more levels per unit than s of these is lifted: see quantize.c */

typedef struct {
    const aq_rounding *plan;
    int32_t kind;
    const double *steps, *edges, *centres;
    double *dots;
    float *out;
} job;

enum { NEAREST, EXPONENTS, LATTICE, POINTS };

/* A part of a segment. It begins an even number of elements behind the segment's beginning: the lattice has pairs. */
static void round_run(const job *work, int64_t segment, int64_t begin, int64_t count) {
    const aq_rounding *plan = work->plan;
    const aq_rounding_kernels *kernels = AQ_PICK(aq_rounding_kernels);
    char *values = (char *)plan->values + begin * plan->bytes;
    uint32_t place = (uint32_t)begin * AQ_WEYL + (uint32_t)plan->key, high = (uint32_t)(plan->key >> 32);
    const float *x = plan->x + begin;
    double inverse = work->kind == POINTS ? 0 : plan->inverse[segment];
    if (work->kind == NEAREST && inverse > (double)plan->s * TINY_INVERSE) {
        float lifted[AQ_BLOCK];
        for (int64_t start = 0; start < count; start += AQ_BLOCK) {
            int64_t size = aq_least(AQ_BLOCK, count - start);
            for (int64_t i = 0; i < size; i++) lifted[i] = x[start + i] * 0x1p90f;
            kernels->nearest(lifted, size, (float)(inverse * 0x1p-90), (int32_t)plan->s, values + start * plan->bytes,
                             plan->bytes);
        }
    } else if (work->kind == NEAREST) {
        kernels->nearest(x, count, (float)inverse, (int32_t)plan->s, values, plan->bytes);
    } else if (work->kind == EXPONENTS) {
        kernels->exponents(x, count, inverse, plan->s, place, high, values, plan->bytes);
    } else if (work->kind == LATTICE) {
        kernels->lattice(x, count, inverse, place, high, values, plan->bytes);
    } else {
        kernels->points(values, plan->bytes, count, work->steps[segment], place, high, work->out + begin);
    }
}

/* Where a tile at `position` begins, so that no pair is cut. */
static int64_t edge_of(const int64_t *offsets, int64_t segment, int64_t position) {
    return position - ((position - offsets[segment]) & 1);
}

static void round_tiles(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_rounding *plan = work->plan;
    const int64_t *offsets = plan->offsets;
    int64_t position = first * AQ_TILE, stop = aq_least(last * AQ_TILE, offsets[plan->segments]);
    int64_t segment = aq_segment_at(offsets, plan->segments, position);
    position = edge_of(offsets, segment, position);
    if (stop < offsets[plan->segments])
        stop = edge_of(offsets, aq_segment_at(offsets, plan->segments, stop), stop);
    for (int64_t end; position < stop; position = end) {
        while (offsets[segment + 1] <= position) segment++;
        end = aq_least(stop, offsets[segment + 1]);
        round_run(work, segment, position, end - position);
    }
}

static void over_tiles(const aq_rounding *plan, int32_t kind, const double *steps, float *out) {
    job work = {.plan = plan, .kind = kind, .steps = steps, .out = out};
    aq_run(plan->each, round_tiles, &work, (plan->offsets[plan->segments] + AQ_TILE - 1) / AQ_TILE, 4);
}

AQ_API void aq_round_nearest(const aq_rounding *plan) { over_tiles(plan, NEAREST, NULL, NULL); }
AQ_API void aq_round_exponents(const aq_rounding *plan) { over_tiles(plan, EXPONENTS, NULL, NULL); }
AQ_API void aq_round_lattice(const aq_rounding *plan) { over_tiles(plan, LATTICE, NULL, NULL); }
AQ_API void aq_lattice_points(const aq_rounding *plan, const double *steps, float *out) {
    over_tiles(plan, POINTS, steps, out);
}

static void round_blocks(void *context, int64_t first, int64_t last) {
    const job *work = context;
    const aq_rounding *plan = work->plan;
    const aq_rounding_kernels *kernels = AQ_PICK(aq_rounding_kernels);
    for (int64_t b = first; b < last; b++) {
        int64_t begin = plan->offsets[b], count = plan->offsets[b + 1] - begin;
        char *values = (char *)plan->values + begin * plan->bytes;
        if (work->steps)
            work->dots[b] = kernels->steps(plan->x + begin, count, plan->inverse[b], work->steps[b], plan->top,
                                           work->centres, values, plan->bytes);
        else
            work->dots[b] = kernels->centres(plan->x + begin, count, plan->inverse[b], plan->s, work->edges,
                                             work->centres, values, plan->bytes);
    }
}

AQ_API void aq_round_steps(const aq_rounding *plan, const double *steps, const double *centres, double *dots) {
    job work = {.plan = plan, .steps = steps, .centres = centres, .dots = dots};
    aq_run(plan->each, round_blocks, &work, plan->segments, 2);
}

AQ_API void aq_round_centres(const aq_rounding *plan, const double *edges, const double *centres, double *dots) {
    job work = {.plan = plan, .edges = edges, .centres = centres, .dots = dots};
    aq_run(plan->each, round_blocks, &work, plan->segments, 2);
}
