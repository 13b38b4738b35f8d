/* The paper's quantizer: norms of segments, and their elements rounded at random (eq. 4 and 5). */
#include "vectors.h"

#define LARGEST_DOUBLE 1.7976931348623157e308
#define LARGEST_FLOAT 3.4028234663852886e38
#define LARGEST_BITS 0x7F7FFFFF /* of that float */
#define TINY 0x1p-90f /* below it s / scale leaves the range of float32 */
#define LIFT 0x1p90f  /* a power of two, which changes no ratio */

/* Long segments are cut into pieces, so that sums are added in the same order whatever the number of threads. */
typedef struct {
    const float *x;
    const int64_t *offsets;
    int64_t segments, *firsts; /* of each segment's pieces */
    int32_t norm;
    double *parts;
} pieces;

static void measure_pieces(void *context, int64_t first, int64_t last) {
    const pieces *work = context;
    const aq_quantize_kernels *kernels = AQ_PICK(aq_quantize_kernels);
    int64_t segment = aq_segment_at(work->firsts, work->segments, first);
    for (int64_t piece = first; piece < last; piece++) {
        while (work->firsts[segment + 1] <= piece) segment++;
        int64_t begin = work->offsets[segment] + (piece - work->firsts[segment]) * AQ_TILE;
        int64_t count = aq_least(AQ_TILE, work->offsets[segment + 1] - begin);
        work->parts[piece] = work->norm == AQ_L2 ? kernels->squares(work->x + begin, count)
                                                 : (double)kernels->largest(work->x + begin, count);
    }
}

/* Of each segment: the sum of squares or, with AQ_LINF, the bits of the largest magnitude. */
static int32_t measure(const float *x, const int64_t *offsets, int64_t segments, int32_t norm, double *found,
                       aq_arena *arena, aq_each each, aq_error *error) {
    aq_arena mine = *arena;
    int64_t *firsts = aq_take(&mine, 8 * ((uint64_t)segments + 1)), count = 0;
    for (int64_t j = 0; j < segments; j++) {
        if (firsts) firsts[j] = count;
        count += aq_tiles(offsets[j + 1] - offsets[j]);
    }
    double *parts = aq_take(&mine, 8 * (uint64_t)count);
    if (aq_lacks(&mine, error)) return AQ_MEMORY;
    firsts[segments] = count;
    pieces work = {x, offsets, segments, firsts, norm, parts};
    aq_run(each, measure_pieces, &work, count, 4);
    for (int64_t j = 0; j < segments; j++) {
        found[j] = 0.0;
        for (int64_t piece = firsts[j]; piece < firsts[j + 1]; piece++)
            found[j] = norm == AQ_L2 ? found[j] + parts[piece] : found[j] > parts[piece] ? found[j] : parts[piece];
        if (!(found[j] <= (norm == AQ_L2 ? LARGEST_DOUBLE : LARGEST_BITS)))
            return aq_fail(error, AQ_NOT_FINITE, 0, 0, 0, 0);
    }
    return AQ_FINE;
}

AQ_API int32_t aq_squares(const float *x, const int64_t *offsets, int64_t segments, double *sums, aq_memory memory,
                          aq_each each, aq_error *error) {
    aq_arena arena = aq_arena_of(memory);
    return measure(x, offsets, segments, AQ_L2, sums, &arena, each, error);
}

/* The norms of all segments: in double, and as float32. */
static int32_t norms_of(const float *x, const int64_t *offsets, int64_t segments, int32_t norm, double *norms,
                        float *sizes, aq_arena *arena, aq_each each, aq_error *error) {
    int32_t wrong = measure(x, offsets, segments, norm, norms, arena, each, error);
    for (int64_t j = 0; !wrong && j < segments; j++) {
        uint32_t bits = norm == AQ_LINF ? (uint32_t)norms[j] : 0;
        memcpy(&sizes[j], &bits, 4);
        norms[j] = norm == AQ_LINF ? sizes[j] : __builtin_sqrt(norms[j]);
        sizes[j] = (float)norms[j]; /* one below the smallest float32 rounds to 0, and its segment to zeros */
    }
    return wrong;
}

AQ_API int32_t aq_largest(const float *x, const int64_t *offsets, int64_t segments, float *sizes, aq_memory memory,
                          aq_each each, aq_error *error) {
    aq_arena arena = aq_arena_of(memory);
    double *norms = aq_take(&arena, 8 * (uint64_t)segments);
    if (aq_lacks(&arena, error)) return AQ_MEMORY;
    return norms_of(x, offsets, segments, AQ_LINF, norms, sizes, &arena, each, error);
}

/* Tiny segments are multiplied by a power of two first. */
static int32_t is_tiny(float scale) { return scale > 0 && scale < TINY; }

/* s / scale of each segment. */
static int32_t invert(aq_floats *floats, aq_arena *arena, aq_error *error) {
    int64_t n = floats->segments;
    int32_t single = floats->s <= AQ_SINGLE;
    float *inverse = single ? aq_take(arena, 4 * (uint64_t)n) : NULL;
    double *wide = single ? NULL : aq_take(arena, 8 * (uint64_t)n);
    if (aq_lacks(arena, error)) return AQ_MEMORY;
    floats->inverse = inverse, floats->wide = wide;
    for (int64_t j = 0; j < n; j++) {
        float scale = floats->scales[j], lifted = is_tiny(scale) ? scale * LIFT : scale;
        double quotient = scale > 0 ? (double)floats->s / (double)lifted : 0.0;
        if (single) inverse[j] = (float)quotient;
        else wide[j] = quotient;
    }
    return AQ_FINE;
}

int32_t aq_prepare(aq_floats *floats, const double *stretch, int64_t stretches, aq_arena *arena, aq_each each,
                   aq_error *error) {
    int64_t n = floats->segments;
    float *scales = aq_take(arena, 4 * (uint64_t)n);
    double *norms = aq_take(arena, 8 * (uint64_t)n), most = 0.0, widest = 0.0;
    if (aq_lacks(arena, error)) return AQ_MEMORY;
    int32_t wrong = norms_of(floats->x, floats->offsets, n, floats->norm, norms, scales, arena, each, error);
    if (wrong) return wrong;
    for (int64_t j = 0; j < n; j++) most = norms[j] > most ? norms[j] : most;
    if (most > LARGEST_FLOAT) {
        error->real[0] = most;
        return aq_fail(error, AQ_NORM, 0, 0, 0, 0);
    }
    most = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double factor = stretch[stretches == 1 ? 0 : j];
        most = (double)scales[j] > most ? (double)scales[j] : most;
        widest = factor > widest ? factor : widest;
        scales[j] = (float)((double)scales[j] * factor);
        if (!(scales[j] <= (float)LARGEST_FLOAT)) wrong = AQ_STRETCH;
    }
    if (wrong) {
        error->real[0] = most, error->real[1] = widest;
        return aq_fail(error, AQ_STRETCH, 0, 0, 0, 0);
    }
    floats->scales = scales;
    return invert(floats, arena, error);
}

int64_t aq_next_run(const aq_floats *floats, int64_t position, int64_t stop, int64_t *segment, float *room,
                    const float **x, aq_stream *stream) {
    while (floats->offsets[*segment + 1] <= position) ++*segment;
    int64_t count = aq_least(stop, floats->offsets[*segment + 1]) - position;
    stream->inverse = floats->inverse ? floats->inverse[*segment] : 0, stream->top = (float)floats->s;
    stream->wide = floats->wide ? floats->wide[*segment] : 0, stream->s = floats->s;
    stream->place = (uint32_t)position * AQ_WEYL + floats->low, stream->high = floats->high;
    *x = floats->x + position;
    if (!is_tiny(floats->scales[*segment])) return count;
    count = aq_least(count, AQ_BLOCK);
    for (int64_t j = 0; j < count; j++) room[j] = (*x)[j] * LIFT;
    *x = room;
    return count;
}

typedef struct {
    const aq_floats *floats;
    void *values;
    int32_t bytes;
} rounding;

static void round_tiles(void *context, int64_t first, int64_t last) {
    const rounding *work = context;
    const aq_floats *floats = work->floats;
    const aq_quantize_kernels *kernels = AQ_PICK(aq_quantize_kernels);
    int64_t position = first * AQ_TILE, stop = aq_least(last * AQ_TILE, floats->dimension), count;
    int64_t segment = aq_segment_at(floats->offsets, floats->segments, position);
    float room[AQ_BLOCK];
    for (; position < stop; position += count) {
        const float *x;
        aq_stream stream;
        count = aq_next_run(floats, position, stop, &segment, room, &x, &stream);
        kernels->levels(x, count, &stream, (char *)work->values + position * work->bytes, work->bytes);
    }
}

void aq_levels_of(const aq_floats *floats, void *values, int32_t bytes, aq_each each) {
    rounding work = {floats, values, bytes};
    aq_run(each, round_tiles, &work, aq_tiles(floats->dimension), 4);
}

AQ_API int32_t aq_round_random(const aq_rounding *plan, const float *scales, aq_memory memory, aq_error *error) {
    aq_floats floats = {plan->x, plan->offsets, plan->segments, plan->offsets[plan->segments], scales, NULL, NULL,
                        plan->s, (uint32_t)plan->key, (uint32_t)(plan->key >> 32), AQ_L2};
    aq_arena arena = aq_arena_of(memory);
    int32_t wrong = invert(&floats, &arena, error);
    if (!wrong) aq_levels_of(&floats, plan->values, plan->bytes, plan->each);
    return wrong;
}

/* Every range of tiles appends to a region of its own. Where it begins is told by its first tile: its count is kept as
 * -1 - count until the gaps between the regions are closed. */
typedef struct {
    const aq_floats *floats;
    uint32_t *index;
    int32_t *level;
    int64_t room, tiles, *counts;
} search;

#define OVERFULL INT64_MIN

static int64_t region(const search *work, int64_t tile) {
    if (work->room >= work->floats->dimension) return aq_least(tile * AQ_TILE, work->floats->dimension);
    return (int64_t)((double)work->room * (double)tile / (double)work->tiles);
}

static void find_tiles(void *context, int64_t first, int64_t last) {
    const search *work = context;
    const aq_floats *floats = work->floats;
    const aq_quantize_kernels *kernels = AQ_PICK(aq_quantize_kernels);
    int64_t found = region(work, first), end = region(work, last);
    int64_t segment = aq_segment_at(floats->offsets, floats->segments, first * AQ_TILE);
    float room[AQ_BLOCK];
    uint32_t index[AQ_BLOCK];
    int32_t level[AQ_BLOCK];
    for (int64_t tile = first; tile < last; tile++) {
        int64_t position = tile * AQ_TILE, stop = aq_least(position + AQ_TILE, floats->dimension), before = found;
        for (int64_t count; position < stop; position += count) {
            const float *x;
            aq_stream stream;
            int32_t close = found + stop - position > end; /* then a block at a time goes through memory of our own */
            int64_t until = close ? aq_least(stop, position + AQ_BLOCK) : stop, here;
            count = aq_next_run(floats, position, until, &segment, room, &x, &stream);
            here = kernels->find(x, count, &stream, (uint32_t)position, close ? index : work->index + found,
                                 close ? level : work->level + found);
            if (here > end - found) {
                work->counts[first] = OVERFULL;
                return;
            }
            if (close) {
                memcpy(work->index + found, index, 4 * (size_t)here);
                memcpy(work->level + found, level, 4 * (size_t)here);
            }
            found += here;
        }
        work->counts[tile] = tile == first ? -1 - (found - before) : found - before;
    }
}

int64_t aq_find_floats(const aq_floats *floats, uint32_t *index, int32_t *level, int64_t room, int64_t *counts,
                       aq_each each) {
    int64_t tiles = aq_tiles(floats->dimension), found = 0, from = 0;
    search work = {floats, index, level, room, tiles, counts};
    for (int64_t t = 0; t < tiles; t++) counts[t] = 0;
    aq_run(each, find_tiles, &work, tiles, 4);
    for (int64_t t = 0; t < tiles; t++)
        if (counts[t] == OVERFULL) { /* a region was too small: all of the room may still be enough */
            if (!each || tiles < 8) return -1;
            return aq_find_floats(floats, index, level, room, counts, NULL);
        }
    for (int64_t t = 0; t < tiles; t++) {
        if (counts[t] < 0) {
            from = region(&work, t);
            counts[t] = -1 - counts[t];
        }
        if (from != found) {
            memmove(index + found, index + from, 4 * (size_t)counts[t]);
            memmove(level + found, level + from, 4 * (size_t)counts[t]);
        }
        from += counts[t];
        found += counts[t];
    }
    return found;
}

double aq_guess_density(const aq_floats *floats) {
    const int64_t sample = 64, block = 128, spread = 32; /* at most one element in 32 is looked at */
    int64_t d = floats->dimension, rows = aq_least(sample, d / (spread * block)), segment = 0;
    if (rows < 1) rows = 1;
    int64_t step = d / rows, size = aq_least(block, step);
    double sum = 0.0;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = row * step; i < row * step + size; i++) {
            if (floats->offsets[segment + 1] <= i) segment = aq_segment_at(floats->offsets, floats->segments, i);
            double inverse = floats->wide ? floats->wide[segment] : (double)floats->inverse[segment];
            if (is_tiny(floats->scales[segment])) inverse *= (double)LIFT;
            double share = (double)__builtin_fabsf(floats->x[i]) * inverse;
            sum += share < 1.0 ? share : 1.0;
        }
    return sum / (double)(rows * size);
}
