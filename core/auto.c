/* `auto`: the codec with the smallest body, chosen from the histogram of the levels and never by encoding twice.
 *
 * Of a short vector the smallest body is exactly that: only what cannot be the smallest is not encoded. Of a long one
 * sizes are estimated. They are close where the density of non-zeros is even within a block, else a little too high.
 */
#include "dense.h"
#include "sparse.h"

#define SHORT 16384          /* elements: estimates are rough here, and trying costs a fraction of a millisecond */
#define BLOCK 256            /* elements whose non-zeros are counted together */
#define GROUP 64             /* non-zeros of neighbouring blocks that are looked at together: fewer are mostly noise */
#define TILE_OVERHEAD 24     /* bytes of a dense body for each tile that carry no levels, about */
#define LEAST_TABLE 6        /* bytes in front of a dense body's streams */
#define LISTED 0.05          /* share of non-zeros up to which a list of them takes less time than all levels */
#define LONG_LIST 4          /* s from which most levels of a maximum norm are non-zero */
#define SPARSE_ENOUGH 0.6    /* share of non-zeros up to which `sparse` can be the smallest */
#define LN2 0.693147180559945309417232121458

/* How many levels have magnitude 0, 1 and 2, and the bits of the others in Elias gamma. */
typedef struct {
    int64_t dimension, zeros, ones, twos, gamma;
} magnitudes;

static magnitudes magnitudes_of(const aq_census *census) {
    magnitudes m = {.dimension = census->dimension};
    for (int64_t i = 0; i < census->levels; i++) {
        int64_t level = census->level[i] < 0 ? -(int64_t)census->level[i] : census->level[i];
        if (level == 0) m.zeros = census->elements[i];
        else if (level == 1) m.ones += census->elements[i];
        else if (level == 2) m.twos += census->elements[i];
        else m.gamma += census->elements[i] * (2 * aq_floor_log2((uint64_t)level - 2) + 1);
    }
    return m;
}

/* -- how many bytes the sparse code would take */

static double power(double base, int64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}

/* Mean bits of the gaps between `marked` of `things`, at the best divisor and with the price of following it. */
static double golomb_bits(double things, double marked) {
    if (marked == 0) return 0;
    double p = marked / things < 0.999 ? marked / things : 0.999, q = 1 - p;
    double rounded = LN2 * (1 / p - 0.5) + 0x1p52 - 0x1p52; /* halves to the even one */
    int64_t divisor = rounded > 1 ? (int64_t)rounded : 1, bits = aq_floor_log2((uint64_t)(2 * divisor - 1));
    double whole = power(q, divisor), longer = (power(q, ((int64_t)1 << bits) - divisor) - whole) / (1 - whole);
    return marked * (1 / (1 - whole) + (divisor > 1 ? (double)bits - 1 + longer : 0) + 0.03);
}

static double sparse_size(double gap_bits, const magnitudes *m) {
    int64_t total = m->dimension - m->zeros, before = total, mine[2] = {m->ones, m->twos};
    int64_t chunks = ((m->dimension - 1) >> aq_chunk_shift(total, m->dimension)) + 1;
    double each = (double)chunks, directory = 1 + each, bits = gap_bits + (double)total;
    if (total == 0) return directory;
    for (int reach = 2; reach < 4 && before > 0; reach++) {
        int64_t here = before - mine[reach - 2];
        bits += each * (1 + 2 * aq_log2(1 + (double)here / each)) + golomb_bits((double)before, (double)here);
        before = here;
    }
    directory += each * (((double)total / each >= 128) + 2.5) - 2;
    return directory + (bits + (double)m->gamma) / 8;
}

/* The same where the density is even over the whole vector: about the most that this many non-zeros can take. */
static double even_size(const magnitudes *m) {
    return sparse_size(golomb_bits((double)m->dimension, (double)(m->dimension - m->zeros)), m);
}

static double estimated_size(const uint16_t *blocks, const magnitudes *m) {
    int64_t count = (m->dimension + BLOCK - 1) / BLOCK, seen = 0, group = 0, marked = 0, things = 0;
    double bits = 0;
    for (int64_t i = 0; i < count; i++) {
        seen += blocks[i];
        if (seen / GROUP != group) {
            bits += golomb_bits((double)things, (double)marked);
            group = seen / GROUP, marked = things = 0;
        }
        marked += blocks[i];
        things += aq_least(BLOCK, m->dimension - BLOCK * i);
    }
    return sparse_size(bits + golomb_bits((double)things, (double)marked), m);
}

/* At most what estimated_size is, in a fraction of the time: gaps take at least the entropy of their blocks. */
static double least_estimate(const uint16_t *blocks, const magnitudes *m) {
    int64_t have[BLOCK + 1] = {0}; /* blocks with this many non-zeros */
    double bits = 0;
    for (int64_t i = 0; i < m->dimension / BLOCK; i++) have[blocks[i]]++; /* a short one would count as a long one */
    for (int k = 1; k < BLOCK; k++) {
        double p = (double)k / BLOCK;
        if (have[k]) bits -= (double)have[k] * BLOCK * (p * aq_log2(p) + (1 - p) * aq_log2(1 - p));
    }
    return sparse_size(bits, m);
}

/* How many elements with a magnitude below 3 have a larger one behind them. */
AQ_INLINE int64_t rises_of(int32_t bytes, const void *values, int64_t dimension) {
    int32_t rises = 0;
    for (int64_t i = 0; i + 1 < dimension; i++) {
        int32_t left = aq_level_at(values, bytes, i), right = aq_level_at(values, bytes, i + 1);
        left = left < 0 ? -left : left;
        right = right < 0 ? -right : right;
        rises += (left < 3) & (right > left);
    }
    return rises;
}

/* Bytes that the body of a vector of one chunk has at the very least. A gap takes one bit at least, and two where it
 * is not 0. Take an element with a magnitude below 3 and a larger one behind it. The next step leaves the first one
 * out, so the gap before the second is not 0 there. */
static double least_size(const void *values, int32_t bytes, const magnitudes *m) {
    int64_t d = m->dimension, large = d - m->zeros - m->ones - m->twos;
    int64_t bits = 2 * m->ones + 3 * m->twos + 4 * large + m->gamma;
    bits += AQ_BY_SIZE(bytes, rises_of, values, d);
    return (double)(2 + (bits + 7) / 8);
}

/* -- the others */

/* Bytes that a dense body has at the very least: half of its states hold no levels. */
static double least_dense(double entropy) { return 0.999 * (entropy / 8) + 2 * 4 + LEAST_TABLE; }

/* The same for a long vector, about. */
static double least_tiles(double entropy, int64_t dimension) {
    return entropy / 8 + (double)(TILE_OVERHEAD * aq_tiles(dimension));
}

static int32_t sparse_enough(const magnitudes *m) {
    return (double)m->zeros > (1 - SPARSE_ENOUGH) * (double)m->dimension;
}

/* Whether `sparse` is the smallest even if the density is the same all along the vector. */
static int32_t surely_sparse(const magnitudes *m, double entropy, int64_t top) {
    if (!sparse_enough(m)) return 0;
    double size = even_size(m);
    return size < (double)aq_fixed_size(m->dimension, top) && size < least_tiles(entropy, m->dimension);
}

/* The place of the smallest size, the first of equals. */
static int32_t smallest(const double *sizes, int32_t count) {
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (sizes[i] < sizes[best]) best = i;
    return best;
}

/* -- bodies */

typedef struct {
    const void *values;
    int32_t bytes;
    int64_t dimension, top;
    uint8_t *body;
    uint64_t room;
    aq_each each;
    aq_error *error;
} job;

static int64_t write_fixed(const job *j) {
    uint64_t size = aq_fixed_size(j->dimension, j->top);
    if (size > j->room) return -aq_fail(j->error, AQ_ROOM, (int64_t)size, 0, 0, 0);
    aq_fixed_write(j->values, j->bytes, j->dimension, j->top, j->body, j->each);
    return (int64_t)size;
}

static int64_t write_sparse(const job *j, int64_t count, uint8_t *body, uint64_t room, aq_arena mine) {
    int64_t *counts = aq_take(&mine, 8 * (uint64_t)aq_tiles(j->dimension));
    uint32_t *index = aq_take(&mine, 4 * (uint64_t)count);
    int32_t *level = aq_take(&mine, 4 * (uint64_t)count);
    if (mine.lacking) {
        aq_take(&mine, (AQ_BYTES_LISTED - 8) * (uint64_t)count);
        aq_lacks(&mine, j->error);
        return -1;
    }
    aq_find_levels(j->values, j->bytes, j->dimension, index, level, count, counts, j->each);
    return aq_sparse_write(index, level, count, counts, j->dimension, body, room, &mine, j->each, j->error);
}

static int64_t write_dense(const job *j, const aq_dense_plan *plan, uint8_t *body, uint64_t room, aq_arena *arena) {
    return aq_dense_write_planned(j->values, j->bytes, j->dimension, plan, body, room, arena, j->each, j->error);
}

/* The smallest body of a short vector. sparse: the size of the sparse body where it is in j->body already, or 0. */
static int64_t write_shortest(const job *j, int64_t sparse, int32_t *codec, aq_arena mine) {
    aq_census census;
    aq_dense_plan plan;
    uint64_t fixed = aq_fixed_size(j->dimension, j->top), room = j->room;
    uint8_t *other = aq_take(&mine, fixed); /* for a second body: one that is larger than that is not chosen */
    if (aq_count(j->values, j->bytes, j->dimension, j->top, 0, &census, &mine, j->each, j->error)) return -1;
    magnitudes m = magnitudes_of(&census);
    double entropy = aq_entropy(&census);
    double sizes[3] = {(double)fixed, (double)sparse, least_dense(entropy)};
    if (!sparse) sizes[AQ_SPARSE] = least_size(j->values, j->bytes, &m);
    uint8_t *bodies[3] = {j->body, sparse ? j->body : NULL, NULL};
    for (;;) {
        int32_t best = smallest(sizes, 3);
        if (bodies[best]) {
            *codec = best;
            if (best == AQ_FIXED) return write_fixed(j);
            uint64_t size = (uint64_t)sizes[best];
            if (size > room) return -aq_fail(j->error, AQ_ROOM, (int64_t)size, 0, 0, 0);
            if (bodies[best] != j->body) memcpy(j->body, bodies[best], size);
            return (int64_t)size;
        }
        int32_t second = bodies[AQ_SPARSE] || bodies[AQ_DENSE];
        bodies[best] = second ? other : j->body;
        uint64_t space = second ? fixed : room;
        int64_t size = -1;
        if (best == AQ_SPARSE) size = write_sparse(j, m.dimension - m.zeros, bodies[best], space, mine);
        else if (!aq_dense_choose(&census, entropy, &plan, &mine, j->error))
            size = write_dense(j, &plan, bodies[best], space, &mine);
        if (size < 0 && j->error->code != AQ_ROOM) return -1;
        sizes[best] = (double)(size < 0 ? j->error->numbers[0] : size);
    }
}

/* Non-zeros of each block. */
static uint16_t *count_blocks(const void *values, int32_t bytes, int64_t dimension, aq_arena *arena) {
    int64_t count = (dimension + BLOCK - 1) / BLOCK;
    uint16_t *blocks = aq_take(arena, 2 * (uint64_t)count);
    for (int64_t i = 0; blocks && i < count; i++)
        blocks[i] = (uint16_t)aq_count_nonzeros(values, bytes, i * BLOCK, aq_least(dimension, (i + 1) * BLOCK));
    return blocks;
}

static int64_t write_long(const job *j, int32_t *codec, aq_arena mine) {
    static const int32_t order[3] = {AQ_FIXED, AQ_DENSE, AQ_SPARSE};
    aq_census census;
    aq_dense_plan plan;
    if (aq_count(j->values, j->bytes, j->dimension, j->top, 1, &census, &mine, j->each, j->error)) return -1;
    magnitudes m = magnitudes_of(&census);
    double entropy = aq_entropy(&census);
    *codec = AQ_SPARSE;
    if (surely_sparse(&m, entropy, j->top)) return write_sparse(j, m.dimension - m.zeros, j->body, j->room, mine);
    double sizes[3] = {(double)aq_fixed_size(j->dimension, j->top), least_tiles(entropy, j->dimension), 0};
    int32_t known[3] = {1, 0, 0}, candidates = 2;
    uint16_t *blocks = NULL;
    if (sparse_enough(&m)) {
        blocks = count_blocks(j->values, j->bytes, j->dimension, &mine);
        if (aq_lacks(&mine, j->error)) return -1;
        sizes[2] = least_estimate(blocks, &m);
        candidates = 3;
    }
    for (;;) {
        int32_t best = smallest(sizes, candidates);
        if (known[best]) {
            *codec = order[best];
            return best == 0   ? write_fixed(j)
                   : best == 1 ? write_dense(j, &plan, j->body, j->room, &mine)
                               : write_sparse(j, m.dimension - m.zeros, j->body, j->room, mine);
        }
        known[best] = 1;
        if (best == 2) sizes[2] = estimated_size(blocks, &m);
        else if (aq_dense_choose(&census, entropy, &plan, &mine, j->error)) return -1;
        else sizes[1] = plan.size;
    }
}

int64_t aq_auto_write(const void *values, int32_t bytes, int64_t dimension, int64_t top, uint8_t *body, uint64_t room,
                      int32_t *codec, aq_arena *arena, aq_each each, aq_error *error) {
    job j = {values, bytes, dimension, top, body, room, each, error};
    return dimension <= SHORT ? write_shortest(&j, 0, codec, *arena) : write_long(&j, codec, *arena);
}

/* -- from floats */

/* Whether a list of the non-zeros is likely to be long: for a short vector by the norm alone, without a look at it. */
static int32_t many_nonzeros(const aq_floats *floats) {
    if (floats->dimension > SHORT) return aq_guess_density(floats) > LISTED;
    uint64_t s = floats->s;
    return floats->norm == AQ_L2 ? s * s * (uint64_t)floats->segments > (uint64_t)floats->dimension : s > LONG_LIST;
}

/* The census of a vector of which only these levels are not 0. */
static int32_t count_listed(const int32_t *level, int64_t count, int64_t dimension, int64_t top, aq_census *census,
                            aq_arena *arena, aq_error *error) {
    int32_t wrong = aq_count(level, 4, count, top, 0, census, arena, NULL, error);
    int64_t i = wrong || count == dimension ? 0 : census->levels++;
    census->dimension = dimension;
    if (wrong || count == dimension) return wrong;
    for (; i > 0 && census->level[i - 1] > 0; i--)
        census->level[i] = census->level[i - 1], census->elements[i] = census->elements[i - 1];
    census->level[i] = 0;
    census->elements[i] = dimension - count;
    return wrong;
}

int64_t aq_auto_compress(const aq_floats *floats, uint8_t *body, uint64_t room, int32_t *codec, aq_arena *arena,
                         aq_each each, aq_error *error) {
    int64_t d = floats->dimension, top = floats->s, sparse = 0;
    aq_arena mine = *arena;
    int32_t bytes = aq_level_bytes(top);
    job j = {NULL, bytes, d, top, body, room, each, error};
    if (many_nonzeros(floats)) {
        void *values = aq_take(&mine, (uint64_t)d * (uint64_t)bytes);
        if (aq_lacks(&mine, error)) return -1;
        aq_levels_of(floats, values, bytes, each);
        return aq_auto_write(values, bytes, d, top, body, room, codec, &mine, each, error);
    }
    int64_t *counts = aq_take(&mine, 8 * (uint64_t)aq_tiles(d));
    int64_t most = aq_least(d, (int64_t)(mine.left / AQ_BYTES_LISTED));
    uint32_t *index = aq_take(&mine, 4 * (uint64_t)most);
    int32_t *level = aq_take(&mine, 4 * (uint64_t)most);
    int64_t count = mine.lacking ? -1 : aq_find_floats(floats, index, level, most, counts, each);
    if (count < 0) {
        mine.lacking = 1, mine.taken += AQ_BYTES_LISTED * (uint64_t)d;
        aq_lacks(&mine, error);
        return -1;
    }
    aq_census census;
    aq_arena after = mine;
    if (count_listed(level, count, d, top, &census, &after, error)) return -1;
    magnitudes m = magnitudes_of(&census);
    double entropy = aq_entropy(&census);
    *codec = AQ_SPARSE;
    if (d <= SHORT || surely_sparse(&m, entropy, top)) {
        sparse = aq_sparse_write(index, level, count, counts, d, body, room, &mine, each, error);
        if (d > SHORT || (sparse < 0 && error->code != AQ_ROOM)) return sparse;
        if (sparse > 0 && (double)sparse < (double)aq_fixed_size(d, top) && (double)sparse < least_dense(entropy))
            return sparse;
    }
    void *values = aq_take(&mine, (uint64_t)d * (uint64_t)bytes);
    if (aq_lacks(&mine, error)) return -1;
    memset(values, 0, (size_t)d * (size_t)bytes);
    for (int64_t i = 0; i < count; i++) aq_put_level(values, bytes, index[i], level[i]);
    j.values = values;
    return d <= SHORT ? write_shortest(&j, sparse > 0 ? sparse : 0, codec, mine) : write_long(&j, codec, mine);
}

