/* Runs of elements to levels, by the quantizers other than the paper's. Products and sums are in the order that is
 * written here: they decide about bytes. */
#include "vectors.h"

#define UNIT 0x1p-31               /* of a random number */
#define ROW 0.8660254037844386     /* sqrt(3) / 2: from one row of the lattice's points to the next */
#define PART 256                   /* elements whose numbers in between are kept side by side */

AQ_INLINE void put_each(int32_t bytes, void *restrict values, const int32_t *restrict levels, int64_t count) {
    for (int64_t i = 0; i < count; i++) aq_put_level(values, bytes, i, levels[i]);
}

static inline void put_all(void *values, int32_t bytes, const int32_t *levels, int64_t count) {
    AQ_BY_SIZE(bytes, put_each, values, levels, count);
}

static inline double uniform(uint32_t place, uint32_t high) {
    return (double)(int32_t)(aq_draw(place, high) >> 1) * UNIT;
}

/* The largest whole number that is not above x, for |x| < 2^31; without the C library. */
static inline double floor_of(double x) {
    double whole = (double)(int32_t)x;
    return whole > x ? whole - 1.0 : whole;
}

/* Adding 1.5 x 2^23 rounds to a whole number, halves to the even one, and leaves it in the sum's low bits. Larger sums
 * have larger bits: what is beyond top is cut off. */
AQ_INLINE void nearest_all(int32_t bytes, const float *restrict x, int64_t count, float inverse, int32_t top,
                           void *restrict values) {
    for (int64_t i = 0; i < count; i++) {
        float sum = x[i] * inverse + 0x1.8p23f;
        int32_t level;
        memcpy(&level, &sum, 4);
        level = level < 0x4B400000 - top ? 0x4B400000 - top : level;
        level = level > 0x4B400000 + top ? 0x4B400000 + top : level;
        aq_put_level(values, bytes, i, level - 0x4B400000);
    }
}

static void nearest(const float *x, int64_t count, float inverse, int32_t top, void *values, int32_t bytes) {
    AQ_BY_SIZE(bytes, nearest_all, x, count, inverse, top, values);
}

/* Below the smallest level, 2^(1-s) of the norm, a share of it; above, 2^e and the share of the way to 2^(e+1). */
static void exponents(const float *restrict x, int64_t count, double inverse, uint32_t s, uint32_t place, uint32_t high,
                      void *values, int32_t bytes) {
    const int64_t one = (int64_t)1023 << 52, mantissa = ((int64_t)1 << 52) - 1;
    double smallest, many;
    int64_t bits = (int64_t)(1023 + 1 - (int32_t)s) << 52;
    memcpy(&smallest, &bits, 8);
    bits = (int64_t)(1023 - 1 + (int32_t)s) << 52;
    memcpy(&many, &bits, 8);
    AQ_ALIGNED int32_t levels[PART];
    for (int64_t start = 0; start < count; start += PART) {
        int64_t size = aq_least(PART, count - start);
        for (int64_t i = 0; i < size; i++) {
            double t = (double)__builtin_fabsf(x[start + i]) * inverse, share;
            double random = uniform(place + (uint32_t)(start + i) * AQ_WEYL, high);
            t = t < 1.0 ? t : 1.0;
            int64_t pattern, fraction;
            memcpy(&pattern, &t, 8);
            fraction = (pattern & mantissa) | one;
            memcpy(&share, &fraction, 8);
            int64_t exponent = (pattern >> 52) - 1023;
            int32_t small = t < smallest;
            share = small ? t * many : share - 1.0;
            int32_t level = (small ? 0 : (int32_t)s + (int32_t)exponent) + (random < share);
            levels[i] = x[start + i] < 0 ? -level : level;
        }
        put_all((char *)values + start * bytes, bytes, levels, size);
    }
}

/* The point of the lattice that is nearest to (x, y): the better of the nearest in even and in odd rows. A point (a, b)
 * lies at (a, or a + 1/2 where b is odd; ROW b). */
static inline void nearest_point(double x, double y, double *a, double *b) {
    double even_a = floor_of(x + 0.5), even_row = floor_of(y / (2 * ROW) + 0.5);
    double odd_a = floor_of(x), odd_row = floor_of(y / (2 * ROW));
    double even_x = x - even_a, even_y = y - 2 * ROW * even_row;
    double odd_x = x - odd_a - 0.5, odd_y = y - ROW * (2 * odd_row + 1);
    int32_t odd = odd_x * odd_x + odd_y * odd_y < even_x * even_x + even_y * even_y;
    *a = odd ? odd_a : even_a;
    *b = odd ? 2 * odd_row + 1 : 2 * even_row;
}

static inline double point_x(double a, double b) { return a + 0.5 * (b - 2 * floor_of(0.5 * b)); }

/* Uniform over the lattice's cell: uniform over a parallelogram, less the nearest point. */
static inline void dither(uint32_t place, uint32_t high, double *z_x, double *z_y) {
    double first = uniform(place, high), second = uniform(place + AQ_WEYL, high), a, b;
    double x = first + 0.5 * second, y = second * ROW;
    nearest_point(x, y, &a, &b);
    *z_x = x - point_x(a, b);
    *z_y = y - b * ROW;
}

static void lattice(const float *restrict x, int64_t count, double inverse, uint32_t place, uint32_t high, void *values,
                    int32_t bytes) {
    AQ_ALIGNED int32_t levels[PART];
    for (int64_t start = 0; start < count; start += PART) {
        int64_t size = aq_least(PART, count - start), pairs = size / 2;
        uint32_t here = place + (uint32_t)start * AQ_WEYL;
        for (int64_t j = 0; j < pairs; j++) {
            double z_x, z_y, a, b;
            dither(here + 2 * (uint32_t)j * AQ_WEYL, high, &z_x, &z_y);
            nearest_point((double)x[start + 2 * j] * inverse + z_x, (double)x[start + 2 * j + 1] * inverse + z_y, &a,
                          &b);
            levels[2 * j] = (int32_t)a;
            levels[2 * j + 1] = (int32_t)b;
        }
        if (size % 2) /* the last element of an odd segment is dithered alone */
            levels[size - 1] = (int32_t)floor_of((double)x[start + size - 1] * inverse +
                                                 uniform(here + (uint32_t)(size - 1) * AQ_WEYL, high));
        put_all((char *)values + start * bytes, bytes, levels, size);
    }
}

static void points(const void *values, int32_t bytes, int64_t count, double step, uint32_t place, uint32_t high,
                   float *restrict out) {
    AQ_ALIGNED int32_t levels[PART];
    for (int64_t start = 0; start < count; start += PART) {
        int64_t size = aq_least(PART, count - start), pairs = size / 2;
        uint32_t here = place + (uint32_t)start * AQ_WEYL;
        for (int64_t j = 0; j < size; j++) levels[j] = (int32_t)aq_level_at(values, bytes, start + j);
        for (int64_t j = 0; j < pairs; j++) {
            double z_x, z_y, a = levels[2 * j], b = levels[2 * j + 1];
            dither(here + 2 * (uint32_t)j * AQ_WEYL, high, &z_x, &z_y);
            out[start + 2 * j] = (float)(step * (point_x(a, b) - z_x));
            out[start + 2 * j + 1] = (float)(step * (b * ROW - z_y));
        }
        if (size % 2) {
            double draw = uniform(here + (uint32_t)(size - 1) * AQ_WEYL, high) - 0.5;
            out[start + size - 1] = (float)(step * ((double)levels[size - 1] - draw));
        }
    }
}

static double steps(const float *restrict x, int64_t count, double inverse, double step, int64_t top,
                    const double *centres, void *values, int32_t bytes) {
    AQ_ALIGNED int32_t levels[PART], sizes[PART];
    double total = 0.0, most = (double)top;
    for (int64_t start = 0; start < count; start += PART) {
        int64_t size = aq_least(PART, count - start);
        for (int64_t i = 0; i < size; i++) {
            double t = (double)__builtin_fabsf(x[start + i]) * inverse / step + 0.5;
            int32_t level = (int32_t)(t < most ? t : most);
            sizes[i] = level;
            levels[i] = x[start + i] < 0 ? -level : level;
        }
        for (int64_t i = 0; i < size; i++) total += (double)__builtin_fabsf(x[start + i]) * centres[sizes[i]];
        put_all((char *)values + start * bytes, bytes, levels, size);
    }
    if (total == 0.0) { /* a scale cannot mend a block of zeros: its largest element gets 1 or -1 */
        int64_t largest = 0;
        for (int64_t i = 1; i < count; i++)
            if (__builtin_fabsf(x[i]) > __builtin_fabsf(x[largest])) largest = i;
        total = (double)__builtin_fabsf(x[largest]) * centres[1];
        aq_put_level(values, bytes, largest, total == 0.0 ? 0 : x[largest] < 0 ? -1 : 1);
    }
    return total * inverse;
}

/* With one centre there are only signs, and sums are added side by side: 32 of them, or 4 where a block has fewer
 * elements. signs: or NULL. */
static double one_centre(const float *restrict x, int64_t count, double inverse, double centre,
                         int8_t *restrict signs) {
    double sums[32] = {0}, factor = inverse * centre, total = 0.0;
    if (count < 32 && signs)
        for (int64_t i = 0; i < count; i++) signs[i] = x[i] < 0 ? -1 : 1;
    if (count < 4) {
        for (int64_t i = 0; i < count; i++) total += (double)__builtin_fabsf(x[i]) * inverse * centre;
        return total;
    }
    if (count < 32) {
        for (int64_t i = 0; i < count; i++) sums[i % 4] += (double)__builtin_fabsf(x[i]) * factor;
    } else {
        aq_doubles part[64 / AQ_WIDTH];
        for (int v = 0; v < 64 / AQ_WIDTH; v++) part[v] = (aq_doubles){0};
        for (int64_t i = 0; i < count; i += 32) {
            __builtin_prefetch(x + i + AQ_AHEAD);
            __builtin_prefetch(x + i + AQ_AHEAD + 16);
            if (signs)
                for (int64_t j = i; j < i + 32; j++) signs[j] = x[j] < 0 ? -1 : 1;
#pragma GCC unroll 16
            for (int v = 0; v < 64 / AQ_WIDTH; v++)
                part[v] += aq_widen(x + i + v * (AQ_WIDTH / 2), 0x7FFFFFFF) * factor;
        }
        memcpy(sums, part, sizeof sums);
        for (int j = 0; j < 8; j++) sums[j] = ((sums[j] + sums[j + 8]) + sums[j + 16]) + sums[j + 24];
        for (int j = 0; j < 4; j++) sums[j] += sums[j + 4];
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

static double centres_(const float *restrict x, int64_t count, double inverse, uint32_t s, const double *edges,
                       const double *centres, void *values, int32_t bytes) {
    AQ_ALIGNED int32_t levels[PART], numbers[PART];
    AQ_ALIGNED double sizes[PART], total = 0.0;
    if (s == 1) {
        for (int64_t i = 0; i < count && bytes > 1; i++) aq_put_level(values, bytes, i, x[i] < 0 ? -1 : 1);
        return one_centre(x, count, inverse, centres[0], bytes == 1 ? values : NULL);
    }
    for (int64_t start = 0; start < count; start += PART) {
        int64_t size = aq_least(PART, count - start);
        for (int64_t i = 0; i < size; i++) {
            sizes[i] = (double)__builtin_fabsf(x[start + i]) * inverse;
            numbers[i] = 0;
        }
        for (uint32_t e = 0; e + 1 < s; e++) {
            double edge = edges[e];
            for (int64_t i = 0; i < size; i++) numbers[i] += sizes[i] > edge;
        }
        for (int64_t i = 0; i < size; i++) total += sizes[i] * centres[numbers[i]];
        for (int64_t i = 0; i < size; i++) levels[i] = x[start + i] < 0 ? -numbers[i] - 1 : numbers[i] + 1;
        put_all((char *)values + start * bytes, bytes, levels, size);
    }
    return total;
}

const aq_rounding_kernels AQ_NAME(aq_rounding_kernels) = {nearest, exponents, lattice, points, steps, centres_};
