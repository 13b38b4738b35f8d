/* The paper's quantizer: norms of segments, and their elements rounded at random (eq. 4 and 5). */
#include "vectors.h"

#define LARGEST_FLOAT 3.4028234663852886e38
#define TINY 0x1p-90f /* below it s / scale leaves the range of float32 */
#define LIFT 0x1p90f  /* a power of two, which changes no ratio */
#define SINGLE_LEVELS 4095

/* Long segments are cut into pieces, so that sums are added in the same order whatever the number of threads. */
typedef struct {
    const float *x;
    const int64_t *offsets, *firsts; /* firsts: of each segment's pieces; NULL: every segment is one piece */
    int64_t segments;
    double *sums;    /* of each piece, where they are wanted */
    uint32_t *tops;  /* the bits of each piece's largest magnitude, else */
} pieces;

static double squares_of(const float *x, int64_t count) {
    const aq_quantize_kernels *kernels = AQ_PICK(aq_quantize_kernels);
    double total = 0.0;
    for (int64_t at = 0; at < count; at += AQ_TILE) total += kernels->squares(x + at, aq_least(AQ_TILE, count - at));
    return total;
}

static void measure_pieces(void *context, int64_t first, int64_t last) {
    const pieces *work = context;
    const aq_quantize_kernels *kernels = AQ_PICK(aq_quantize_kernels);
    int64_t segment = work->firsts ? aq_segment_at(work->firsts, work->segments, first) : first;
    for (int64_t piece = first; piece < last; piece++) {
        if (!work->firsts) segment = piece;
        else while (work->firsts[segment + 1] <= piece) segment++;
        int64_t begin = work->offsets[segment] + (work->firsts ? (piece - work->firsts[segment]) * AQ_TILE : 0);
        int64_t count = aq_least(AQ_TILE, work->offsets[segment + 1] - begin);
        if (work->sums) work->sums[piece] = kernels->squares(work->x + begin, count);
        else work->tops[piece] = kernels->largest(work->x + begin, count);
    }
}

/* Sums of squares, or the bits of the largest magnitudes, of all segments. */
static int32_t measure(const float *x, const int64_t *offsets, int64_t segments, double *sums, uint32_t *tops,
                       aq_arena *arena, aq_each each, aq_error *error) {
    int64_t count = 0;
    for (int64_t j = 0; j < segments; j++) count += (offsets[j + 1] - offsets[j] + AQ_TILE - 1) / AQ_TILE;
    if (!each || count < 8) {
        const aq_quantize_kernels *kernels = AQ_PICK(aq_quantize_kernels);
        for (int64_t j = 0; j < segments; j++)
            if (sums) sums[j] = squares_of(x + offsets[j], offsets[j + 1] - offsets[j]);
            else tops[j] = kernels->largest(x + offsets[j], offsets[j + 1] - offsets[j]);
        return AQ_FINE;
    }
    pieces work = {x, offsets, NULL, segments, sums, tops};
    if (count > segments) {
        int64_t *firsts = aq_take(arena, 8 * (uint64_t)(segments + 1));
        void *parts = aq_take(arena, 8 * (uint64_t)count);
        if (aq_lacks(arena, error)) return AQ_MEMORY;
        firsts[0] = 0;
        for (int64_t j = 0; j < segments; j++)
            firsts[j + 1] = firsts[j] + (offsets[j + 1] - offsets[j] + AQ_TILE - 1) / AQ_TILE;
        work.firsts = firsts;
        work.sums = sums ? parts : NULL;
        work.tops = parts;
    }
    aq_run(each, measure_pieces, &work, count, 4);
    if (count > segments)
        for (int64_t j = 0; j < segments; j++) {
            double sum = 0.0;
            uint32_t top = 0;
            for (int64_t piece = work.firsts[j]; piece < work.firsts[j + 1]; piece++)
                if (sums) sum += work.sums[piece];
                else top = work.tops[piece] > top ? work.tops[piece] : top;
            if (sums) sums[j] = sum;
            else tops[j] = top;
        }
    return AQ_FINE;
}

static int32_t squares(const float *x, const int64_t *offsets, int64_t segments, double *sums, aq_arena *arena,
                       aq_each each, aq_error *error) {
    int32_t wrong = measure(x, offsets, segments, sums, NULL, arena, each, error);
    for (int64_t j = 0; !wrong && j < segments; j++)
        if (!(sums[j] <= 1.7976931348623157e308)) wrong = aq_fail(error, AQ_NOT_FINITE, 0, 0, 0, 0);
    return wrong;
}

static int32_t largest(const float *x, const int64_t *offsets, int64_t segments, float *sizes, aq_arena *arena,
                       aq_each each, aq_error *error) {
    int32_t wrong = measure(x, offsets, segments, NULL, (uint32_t *)(void *)sizes, arena, each, error);
    for (int64_t j = 0; !wrong && j < segments; j++)
        if (!(sizes[j] <= (float)LARGEST_FLOAT)) wrong = aq_fail(error, AQ_NOT_FINITE, 0, 0, 0, 0);
    return wrong;
}

AQ_API int32_t aq_squares(const float *x, const int64_t *offsets, int64_t segments, double *sums, aq_memory memory,
                          aq_each each, aq_error *error) {
    aq_arena arena = aq_arena_of(memory);
    return squares(x, offsets, segments, sums, &arena, each, error);
}

AQ_API int32_t aq_largest(const float *x, const int64_t *offsets, int64_t segments, float *sizes, aq_memory memory,
                          aq_each each, aq_error *error) {
    aq_arena arena = aq_arena_of(memory);
    return largest(x, offsets, segments, sizes, &arena, each, error);
}

/* s / scale of each segment. Tiny ones are lifted first. */
static int32_t invert(aq_floats *floats, aq_arena *arena, aq_error *error) {
    int64_t n = floats->segments;
    int32_t single = floats->s <= SINGLE_LEVELS;
    float *lift = aq_take(arena, 4 * (uint64_t)n), *inverse = single ? aq_take(arena, 4 * (uint64_t)n) : NULL;
    double *wide = single ? NULL : aq_take(arena, 8 * (uint64_t)n);
    if (aq_lacks(arena, error)) return AQ_MEMORY;
    floats->inverse = inverse, floats->wide = wide, floats->lift = NULL;
    for (int64_t j = 0; j < n; j++) {
        float scale = floats->scales[j];
        lift[j] = scale > 0 && scale < TINY ? LIFT : 1.0f;
        if (lift[j] != 1.0f) floats->lift = lift;
        double quotient = scale > 0 ? (double)floats->s / (double)(scale * lift[j]) : 0.0;
        if (single) inverse[j] = (float)quotient;
        else wide[j] = quotient;
    }
    return AQ_FINE;
}

int32_t aq_prepare(aq_floats *floats, const double *stretch, int64_t stretches, aq_arena *arena, aq_each each,
                   aq_error *error) {
    int64_t n = floats->segments;
    float *scales = aq_take(arena, 4 * (uint64_t)n);
    double *sums = floats->norm == AQ_L2 ? aq_take(arena, 8 * (uint64_t)n) : NULL, most = 0.0, widest = 0.0;
    if (aq_lacks(arena, error)) return AQ_MEMORY;
    int32_t wrong = floats->norm == AQ_L2 ? squares(floats->x, floats->offsets, n, sums, arena, each, error)
                                          : largest(floats->x, floats->offsets, n, scales, arena, each, error);
    if (wrong) return wrong;
    for (int64_t j = 0; j < n && sums; j++) {
        double norm = __builtin_sqrt(sums[j]);
        most = norm > most ? norm : most;
        scales[j] = (float)norm; /* one below the smallest float32 rounds to 0, and its segment to zeros */
    }
    if (most > LARGEST_FLOAT) {
        error->real[0] = most;
        return aq_fail(error, AQ_NORM, 0, 0, 0, 0);
    }
    most = 0.0;
    for (int64_t j = 0; j < n; j++) {
        double factor = stretch[stretches == 1 ? 0 : j];
        most = (double)scales[j] > most ? (double)scales[j] : most;
        widest = factor > widest ? factor : widest;
        double wide = (double)scales[j] * factor;
        scales[j] = (float)wide;
        if (!(scales[j] <= (float)LARGEST_FLOAT)) wrong = AQ_STRETCH;
    }
    if (wrong) {
        error->real[0] = most, error->real[1] = widest;
        return aq_fail(error, AQ_STRETCH, 0, 0, 0, 0);
    }
    floats->scales = scales;
    return invert(floats, arena, error);
}

static aq_stream stream_at(const aq_floats *floats, int64_t segment, int64_t position) {
    aq_stream stream = {floats->inverse ? floats->inverse[segment] : 0, (float)floats->s,
                        floats->wide ? floats->wide[segment] : 0, floats->s,
                        (uint32_t)position * AQ_WEYL + floats->low, floats->high};
    return stream;
}

static int64_t lifted_elements(const aq_floats *floats, int64_t segment, int64_t position, int64_t count, float *room,
                               const float **x) {
    /* As many elements as can be handled next: `room` holds AQ_BLOCK, where they have to be lifted. */
    *x = floats->x + position;
    if (!floats->lift || floats->lift[segment] == 1.0f) return count;
    count = aq_least(count, AQ_BLOCK);
    for (int64_t j = 0; j < count; j++) room[j] = floats->x[position + j] * LIFT;
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
    int64_t position = first * AQ_TILE, stop = aq_least(last * AQ_TILE, floats->dimension);
    int64_t segment = aq_segment_at(floats->offsets, floats->segments, position);
    float room[AQ_BLOCK];
    const float *x;
    while (position < stop) {
        while (floats->offsets[segment + 1] <= position) segment++;
        int64_t count = aq_least(stop, floats->offsets[segment + 1]) - position;
        count = lifted_elements(floats, segment, position, count, room, &x);
        aq_stream stream = stream_at(floats, segment, position);
        kernels->levels(x, count, &stream, (char *)work->values + position * work->bytes, work->bytes);
        position += count;
    }
}

void aq_levels_of(const aq_floats *floats, void *values, int32_t bytes, aq_each each) {
    rounding work = {floats, values, bytes};
    aq_run(each, round_tiles, &work, (floats->dimension + AQ_TILE - 1) / AQ_TILE, 4);
}

AQ_API int32_t aq_round_random(const aq_rounding *plan, const float *scales, aq_memory memory, aq_error *error) {
    aq_floats floats = {plan->x, plan->offsets, plan->segments, plan->offsets[plan->segments], scales, NULL, NULL,
                        NULL, plan->s, (uint32_t)plan->key, (uint32_t)(plan->key >> 32), AQ_L2};
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
    float lifted[AQ_BLOCK];
    uint32_t index[AQ_BLOCK];
    int32_t level[AQ_BLOCK];
    const float *x;
    for (int64_t tile = first; tile < last; tile++) {
        int64_t position = tile * AQ_TILE, stop = aq_least(position + AQ_TILE, floats->dimension), before = found;
        while (position < stop) {
            while (floats->offsets[segment + 1] <= position) segment++;
            int64_t count = aq_least(stop, floats->offsets[segment + 1]) - position, here;
            int32_t close = found + count > end; /* then a block at a time goes through memory of our own */
            if (close) count = aq_least(count, AQ_BLOCK);
            count = lifted_elements(floats, segment, position, count, lifted, &x);
            aq_stream stream = stream_at(floats, segment, position);
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
            position += count;
        }
        work->counts[tile] = tile == first ? -1 - (found - before) : found - before;
    }
}

int64_t aq_find_floats(const aq_floats *floats, uint32_t *index, int32_t *level, int64_t room, int64_t *counts,
                       aq_each each) {
    int64_t tiles = (floats->dimension + AQ_TILE - 1) / AQ_TILE, found = 0, from = 0;
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
            if (floats->lift) inverse *= (double)floats->lift[segment];
            double share = (double)__builtin_fabsf(floats->x[i]) * inverse;
            sum += share < 1.0 ? share : 1.0;
        }
    return sum / (double)(rows * size);
}
