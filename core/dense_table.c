/* The dense codec's table: which interval of 2^e levels, or which pair of levels, has which share of the 4096 slots. */
#include "dense.h"

#define LARGEST_OF_PAIR 7 /* levels of pairs are -7 to 7 */
#define LOOK 4096         /* elements that are looked at first, and that are counted at a time */
#define MOST_BYTES 9      /* of an interval in the table: a run's three numbers and its frequency */
#define ENTRY_BITS 12.0   /* about what that costs */
#define LN2 0.693147180559945309417232121458
#define MOST_PARTS 16     /* of a vector that are counted at the same time */
#define LEAST_EXPONENT 16 /* of the number of symbols in a chunk */
#define MOST_EXPONENT 20
#define CHUNK_BITS 524288.0 /* content of a chunk, at least: its states then take 0.3 % of it */
#define SLACK 1.008         /* of a body's size, over the entropy of its levels; otherwise wider intervals are better */
#define FEW_BYTES 64.0      /* that pairs or narrow intervals, which are fast, may cost a short vector */
#define STATE_BYTES 3 /* of a state that carry no levels: it holds from 15 to 31 bits, 8 of them content on average */
#define MOST_SPAN (AQ_SLOTS << (AQ_MOST_WIDTH - 1)) /* from the first level to the last: intervals that fit the slots */

/* -- counting */

typedef struct {
    const void *values;
    int32_t bytes;
    int64_t dimension, top, parts, rows, width /* numbers of a row */;
    uint32_t *counts; /* rows of each part: equal neighbours would otherwise wait for each other's store */
    uint8_t *beyond;  /* of each part: whether a level does not fit a pair */
} counting;

static inline int64_t part_at(const counting *c, int64_t part) { /* even, so that no pair is cut */
    return part == c->parts ? c->dimension : c->dimension / c->parts * part & ~(int64_t)1;
}

#define COUNT_LEVELS(type)                                                                                             \
    static void count_##type(const counting *c, int64_t first, int64_t last, uint32_t *counts) {                       \
        const type *values = c->values;                                                                                \
        uint32_t *a = counts + c->top, *b = a, *d = a, *e = a;                                                         \
        if (c->rows == 4) b = a + c->width, d = b + c->width, e = d + c->width;                                        \
        int64_t i = first;                                                                                             \
        for (; i + 4 <= last; i += 4) {                                                                                \
            a[values[i]]++;                                                                                            \
            b[values[i + 1]]++;                                                                                        \
            d[values[i + 2]]++;                                                                                        \
            e[values[i + 3]]++;                                                                                        \
        }                                                                                                              \
        for (; i < last; i++) a[values[i]]++;                                                                          \
    }
COUNT_LEVELS(int8_t)
COUNT_LEVELS(int16_t)
COUNT_LEVELS(int32_t)

/* rows[i] += the same number of other rows, which lie `apart` numbers from each other. */
static void add_rows(uint32_t *rows, int64_t others, int64_t apart, int64_t width) {
    for (int64_t r = 1; r <= others; r++)
        for (int64_t i = 0; i < width; i++) rows[i] += rows[r * apart + i];
}

static void count_levels(void *context, int64_t first, int64_t last) {
    const counting *c = context;
    for (int64_t part = first; part < last; part++) {
        uint32_t *counts = c->counts + part * c->rows * c->width;
        memset(counts, 0, 4 * (size_t)(c->rows * c->width));
        (c->bytes == 1 ? count_int8_t : c->bytes == 2 ? count_int16_t : count_int32_t)(c, part_at(c, part),
                                                                                       part_at(c, part + 1), counts);
        add_rows(counts, c->rows - 1, c->width, c->width);
    }
}

/* Levels start to start + size as bytes, perhaps in `room`; *beyond: whether one of them is not from -8 to 7. */
static const int8_t *as_bytes(const counting *c, int64_t start, int64_t size, int8_t *room, uint8_t *beyond) {
    uint32_t wide = 0;
    if (c->bytes == 1) {
        const int8_t *values = (const int8_t *)c->values + start;
        uint8_t some = 0;
        for (int64_t i = 0; c->top > LARGEST_OF_PAIR && i < size; i++) some |= (uint8_t)(values[i] + 8);
        *beyond = some > 15;
        return values;
    }
    for (int64_t i = 0; c->bytes == 2 && i < size; i++) {
        int32_t value = ((const int16_t *)c->values)[start + i];
        wide |= (uint32_t)value + 8;
        room[i] = (int8_t)value;
    }
    for (int64_t i = 0; c->bytes == 4 && i < size; i++) {
        int32_t value = ((const int32_t *)c->values)[start + i];
        wide |= (uint32_t)value + 8;
        room[i] = (int8_t)value;
    }
    *beyond = wide > 15;
    return room;
}

static void count_pairs(void *context, int64_t first, int64_t last) {
    const counting *c = context;
    for (int64_t part = first; part < last; part++) {
        uint32_t *counts = c->counts + part * 1024;
        int8_t room[LOOK];
        memset(counts, 0, 4096);
        c->beyond[part] = 0;
        for (int64_t start = part_at(c, part), end = part_at(c, part + 1); start < end; start += LOOK) {
            int64_t size = aq_least(end - start, LOOK), i = 0;
            const int8_t *bytes = as_bytes(c, start, size, room, &c->beyond[part]);
            if (c->beyond[part]) break;
            while (i + 8 <= size) {
                uint64_t row[8], four; /* pairs, 4 bits for a level */
                if (i + 64 <= size) {
                    memcpy(row, bytes + i, 64);
                    if (!(row[0] | row[1] | row[2] | row[3] | row[4] | row[5] | row[6] | row[7])) {
                        counts[0] += 32;
                        i += 64;
                        continue;
                    }
                }
                for (int64_t behind = aq_least(i + 64, size); i + 8 <= behind; i += 8) {
                    memcpy(&four, bytes + i, 8);
                    four &= 0x0F0F0F0F0F0F0F0Fu;
                    four |= four >> 4;
                    counts[four & 255]++;
                    counts[256 + (four >> 16 & 255)]++;
                    counts[512 + (four >> 32 & 255)]++;
                    counts[768 + (four >> 48 & 255)]++;
                }
            }
            for (; i < size; i += 2) counts[(bytes[i] & 15) + (i + 1 < size ? 16 * (bytes[i + 1] & 15) : 0)]++;
        }
        add_rows(counts, 3, 256, 256);
    }
}

static void append(aq_census *census, int64_t level, int64_t elements) {
    census->level[census->levels] = (int32_t)level;
    census->elements[census->levels] = elements;
    census->levels += elements > 0;
}

/* Whether the levels are small enough for pairs, which are then counted. Those take half the time, and yield those of
 * single levels. */
static int32_t found_pairs(counting *c, aq_census *census, aq_each each) {
    int8_t room[LOOK];
    uint8_t beyond;
    as_bytes(c, 0, aq_least(c->dimension, LOOK), room, &beyond); /* a few of them mostly suffice */
    if (beyond) return 0;
    aq_run(each, count_pairs, c, c->parts, 1);
    for (int64_t part = 0; part < c->parts; part++)
        if (c->beyond[part]) return 0;
    add_rows(c->counts, c->parts - 1, 1024, 256);
    memcpy(census->pairs, c->counts, 1024);
    int64_t sums[16] = {0}, largest = 1; /* of level l at l & 15 */
    for (int i = 0; i < 256; i++) sums[i & 15] += census->pairs[i], sums[i >> 4] += census->pairs[i];
    sums[0] -= c->dimension & 1; /* the 0 behind the last element */
    if (sums[8]) return 0;
    for (int64_t level = -LARGEST_OF_PAIR; level <= LARGEST_OF_PAIR; level++) {
        if (sums[level & 15] && largest < (level < 0 ? -level : level)) largest = level < 0 ? -level : level;
        if (sums[level & 15]) append(census, level, sums[level & 15]);
    }
    census->largest = (int32_t)(c->top > LARGEST_OF_PAIR ? largest : c->top);
    return 1;
}

int32_t aq_count(const void *values, int32_t bytes, int64_t dimension, int64_t top, int32_t pairs, aq_census *census,
                 aq_arena *arena, aq_each each, aq_error *error) {
    counting c = {.values = values, .bytes = bytes, .dimension = dimension, .top = top, .width = 2 * top + 1};
    int64_t most = aq_least(dimension, c.width);
    c.parts = each ? aq_least(MOST_PARTS, aq_least(dimension / (2 * AQ_TILE), dimension / (4 * c.width))) : 1;
    if (c.parts < 1) c.parts = 1;
    if (dimension >> 31 && c.parts < 4) c.parts = 4; /* a count then fits 32 bits */
    c.rows = dimension > 4 * top ? 4 : 1;
    census->dimension = dimension, census->top = top, census->levels = 0, census->largest = 0;
    census->level = aq_take(arena, 4 * (uint64_t)most + 8); /* room for one more */
    census->elements = aq_take(arena, 8 * (uint64_t)most + 16);
    aq_arena mine = *arena;
    uint64_t room = 4 * (uint64_t)c.parts * (uint64_t)(c.rows * c.width), least = 4096 * (uint64_t)c.parts;
    c.counts = aq_take(&mine, room > least ? room : least);
    c.beyond = aq_take(&mine, (uint64_t)c.parts);
    if (aq_lacks(&mine, error)) return AQ_MEMORY;
    if (pairs && found_pairs(&c, census, each)) return AQ_FINE;
    aq_run(each, count_levels, &c, c.parts, 1);
    for (int64_t i = 0; i < c.width; i++) {
        if (c.parts == 1 && i + 8 <= c.width) { /* most may be empty */
            uint64_t four[4];
            memcpy(four, c.counts + i, 32);
            if (!(four[0] | four[1] | four[2] | four[3])) {
                i += 7;
                continue;
            }
        }
        int64_t elements = 0;
        for (int64_t part = 0; part < c.parts; part++) elements += c.counts[part * c.rows * c.width + i];
        append(census, i - top, elements);
    }
    return AQ_FINE;
}

/* Bits of each of so many elements; those of small numbers, which short vectors have many of, are remembered. */
static double bits_of(aq_census *census, double elements) {
    if (elements >= AQ_REMEMBERED) return aq_log2((double)census->dimension / elements);
    double *bits = census->bits + (int64_t)elements;
    if (*bits < 0) *bits = aq_log2((double)census->dimension / elements);
    return *bits;
}

double aq_entropy(aq_census *census) {
    double bits = 0;
    for (int i = 0; i < AQ_REMEMBERED; i++) census->bits[i] = -1;
    for (int64_t i = 0; i < census->levels; i++)
        bits += (double)census->elements[i] * bits_of(census, (double)census->elements[i]);
    return bits;
}

/* -- choosing */

int32_t aq_table_take(aq_table *table, int64_t top, aq_arena *arena) {
    uint64_t most = (uint64_t)aq_least(2 * top + 1, AQ_SLOTS);
    if (most < 225) most = 225; /* pairs */
    table->count = table->pairs = 0;
    table->lowest = aq_take(arena, 4 * most);
    table->width = aq_take(arena, most);
    table->frequency = aq_take(arena, 2 * most);
    table->elements = aq_take(arena, 8 * most);
    return !arena->lacking;
}

/* One node for each aligned interval that has elements. */
typedef struct {
    uint32_t *place; /* of an interval among those of its width */
    uint32_t *first; /* of its levels, as a place in the census */
    double *inside, *costs;
    int8_t *best; /* of each level: the widest interval that was chosen and has it first */
} nodes;

/* Cut the levels into aligned intervals of 2^e: table's lowest levels, widths and elements.
 *
 * An interval costs its elements' bits and its place in the table. A rare one has a slot of its own too, which the
 * others then lack. From single levels upwards, two neighbours become one interval where that is cheaper; an interval
 * with an empty half never is. Returns how many there are, or more than AQ_SLOTS. price: how dear a place is. */
static int32_t intervals(aq_census *census, int32_t widest, double price, const nodes *n, aq_table *table) {
    int64_t half = 1, count = census->levels, total = census->dimension, top = census->top;
    while (half <= -(int64_t)census->level[0] || half <= census->level[count - 1]) half *= 2;
    double slot = (double)total / AQ_SLOTS;
    for (int64_t i = 0; i < count; i++) {
        double elements = (double)census->elements[i], large = elements > slot ? elements : slot;
        double bits = elements * (elements > slot ? bits_of(census, elements) : AQ_SLOT_BITS);
        n->place[i] = (uint32_t)(census->level[i] + half);
        n->first[i] = (uint32_t)i;
        n->inside[i] = elements;
        n->costs[i] = bits + price * (ENTRY_BITS + (large - elements) / LN2);
        n->best[i] = 0;
    }
    for (int32_t e = 1; e <= widest && count > 1; e++) {
        int64_t kept = 0;
        for (int64_t i = 0; i < count; kept++) { /* in place: i is not before `kept` */
            uint32_t place = n->place[i] >> 1, first = n->first[i];
            double elements = n->inside[i], least = n->costs[i];
            if (++i < count && n->place[i] >> 1 == place) {
                int64_t lowest = ((int64_t)place << e) - half;
                elements += n->inside[i];
                least += n->costs[i++];
                if (lowest >= -top && lowest + ((int64_t)1 << e) <= top + 1) {
                    double large = elements > slot ? elements : slot;
                    double bits = elements * (e + (elements > slot ? bits_of(census, elements) : AQ_SLOT_BITS));
                    double whole = bits + price * (ENTRY_BITS + (large - elements) / LN2);
                    if (whole < least) {
                        n->best[first] = (int8_t)e;
                        least = whole;
                    }
                }
            }
            n->place[kept] = place, n->first[kept] = first, n->inside[kept] = elements, n->costs[kept] = least;
        }
        count = kept;
    }
    int32_t found = 0;
    for (int64_t i = 0; i < census->levels; found++) {
        if (found == AQ_SLOTS) return AQ_SLOTS + 1;
        int32_t e = n->best[i];
        int64_t lowest = (((census->level[i] + half) >> e) << e) - half, elements = 0;
        for (int64_t end = lowest + ((int64_t)1 << e); i < census->levels && census->level[i] < end; i++)
            elements += census->elements[i];
        table->lowest[found] = (int32_t)lowest;
        table->width[found] = (uint8_t)e;
        table->elements[found] = elements;
    }
    return found;
}

/* Frequencies: shares of the slots in proportion to the elements, at least 1 each, by largest remainder. Returns the
 * bits that all elements take. remains: scratch for as many numbers as there are intervals. */
static double shares(aq_table *table, int64_t *remains) {
    int64_t slots = AQ_SLOTS, total = 0, count = table->count, *elements = table->elements;
    for (int64_t i = 0; i < count; i++) total += elements[i], remains[i] = 0;
    for (int32_t more = 1; more;) { /* what a rare interval has too much is taken from all others */
        int64_t left = slots, rest = total;
        more = 0;
        for (int64_t i = 0; i < count; i++)
            if (remains[i] == 0 && elements[i] * slots < total) {
                remains[i] = -1;
                left -= 1;
                rest -= elements[i];
                more = 1;
            }
        slots = left, total = rest;
    }
    int64_t missing = slots, limit = 0, above = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t share = 1;
        if (remains[i] == 0) {
            share = elements[i] * slots / total;
            remains[i] = elements[i] * slots - share * total;
            missing -= share;
        }
        table->frequency[i] = (uint16_t)share;
    }
    /* `limit` becomes the largest remainder that at least `missing` of them reach. */
    for (int64_t step = missing ? (int64_t)1 << aq_floor_log2((uint64_t)total) : 0; step > 0; step >>= 1) {
        int64_t reached = 0;
        for (int64_t i = 0; i < count; i++) reached += remains[i] >= limit + step;
        if (reached < missing) above = reached; else limit += step;
    }
    int64_t equal = missing - above;
    double bits = 0;
    for (int64_t i = 0; i < count; i++) {
        if (missing && remains[i] > limit)
            table->frequency[i]++;
        else if (remains[i] == limit && equal > 0) {
            table->frequency[i]++;
            equal--;
        }
        bits += (double)elements[i] * (table->width[i] + AQ_SLOT_BITS - aq_log2(table->frequency[i]));
    }
    return bits;
}

static inline int32_t symbol_of_pair(int32_t a, int32_t b) { return b * 256 + (a & 255); }

/* -- tables as bytes */

/* Of pairs, all frequencies; else runs of adjacent intervals of one width. Returns the place behind them. */
static uint64_t write_table(const aq_table *table, int64_t top, uint8_t *out, uint64_t place) {
    int32_t i = 0, t = table->pairs;
    if (t) {
        for (int32_t a = -t; a <= t; a++)
            for (int32_t b = -t; b <= t; b++) {
                int32_t here = i < table->count && table->lowest[i] == symbol_of_pair(a, b);
                place = aq_write_varint(out, place, here ? table->frequency[i] : 0);
                i += here;
            }
        return place;
    }
    for (int64_t level = -top; i < table->count;) {
        int32_t run = 0;
        place = aq_write_varint(out, place, (uint64_t)(table->lowest[i] - level));
        level = table->lowest[i];
        while (i + run < table->count && table->lowest[i + run] == level && table->width[i + run] == table->width[i]) {
            level += (int64_t)1 << table->width[i];
            run++;
        }
        place = aq_write_varint(out, place, table->width[i]);
        place = aq_write_varint(out, place, (uint64_t)run);
        for (; run > 0; run--, i++) place = aq_write_varint(out, place, table->frequency[i]);
    }
    return place;
}

/* A number below 2^21, in as few bytes as it needs. */
uint64_t aq_table_number(const uint8_t *body, uint64_t size, uint64_t place, uint64_t *number, aq_error *error) {
    *number = 0;
    for (int shift = 0; shift < 21; shift += 7) {
        if (place >= size) {
            aq_fail(error, AQ_TABLE_END, 0, 0, 0, 0);
            return 0;
        }
        uint64_t byte = body[place++];
        *number |= (byte & 127) << shift;
        if (byte == 0 && shift) break;
        if (byte < 128) return place;
    }
    aq_fail(error, AQ_TABLE_NUMBER, 0, 0, 0, 0);
    return 0;
}

static uint64_t read_pairs(const uint8_t *body, uint64_t size, uint64_t place, int64_t top, aq_table *table,
                           aq_error *error) {
    int32_t t = table->pairs;
    uint64_t frequency, sum = 0;
    if (t > aq_least(top, LARGEST_OF_PAIR)) {
        aq_fail(error, AQ_PAIRS, t, top, 0, 0);
        return 0;
    }
    for (int32_t a = -t; a <= t; a++)
        for (int32_t b = -t; b <= t; b++) {
            place = aq_table_number(body, size, place, &frequency, error);
            if (!place) return 0;
            table->lowest[table->count] = symbol_of_pair(a, b);
            table->width[table->count] = 0;
            table->frequency[table->count] = (uint16_t)frequency;
            table->count += frequency > 0;
            sum += frequency;
        }
    if (sum == AQ_SLOTS) return place;
    aq_fail(error, AQ_PAIRS_SUM, (int64_t)sum, 0, 0, 0);
    return 0;
}

uint64_t aq_table_read(const uint8_t *body, uint64_t size, uint64_t place, int64_t top, aq_table *table,
                       aq_error *error) {
    if (table->pairs) return read_pairs(body, size, place, top, table, error);
    uint64_t left = AQ_SLOTS, number;
    for (int64_t level = -top; left > 0;) {
        place = aq_table_number(body, size, place, &number, error);
        if (!place) return 0;
        level += (int64_t)number;
        if (place >= size) {
            aq_fail(error, AQ_TABLE_END, 0, 0, 0, 0);
            return 0;
        }
        int64_t width = body[place++];
        if (width > AQ_WIDEST) {
            aq_fail(error, AQ_TABLE_WIDTH, width, 0, 0, 0);
            return 0;
        }
        place = aq_table_number(body, size, place, &number, error);
        if (!place) return 0;
        if (number < 1 || number > left || level + ((int64_t)number << width) > top + 1) {
            aq_fail(error, AQ_TABLE_COUNT, (int64_t)number, width, level, top);
            return 0;
        }
        for (uint64_t run = number; run > 0; run--, level += (int64_t)1 << width) {
            place = aq_table_number(body, size, place, &number, error);
            if (!place) return 0;
            if (number < 1 || number > left) {
                aq_fail(error, AQ_TABLE_SUM, 0, 0, 0, 0);
                return 0;
            }
            table->lowest[table->count] = (int32_t)level;
            table->width[table->count] = (uint8_t)width;
            table->frequency[table->count++] = (uint16_t)number;
            left -= number;
        }
    }
    return place;
}

int32_t aq_table_largest(const aq_table *table) {
    if (table->pairs) return table->pairs;
    int32_t last = table->count - 1, end = table->lowest[last] + (1 << table->width[last]), largest = 1;
    if (largest < -table->lowest[0]) largest = -table->lowest[0];
    return largest < end - 1 ? end - 1 : largest;
}

/* -- plans */

/* content: the bits that the levels take. States take less than 1 % of that, where there are enough of them. */
static void plan_of(aq_dense_plan *plan, double content, int64_t dimension, int64_t top) {
    static const int32_t lanes[3] = {4, 16, 64};
    static const double share[3] = {0, 0.016, 0.003}; /* of the content, that this many states may take at most */
    int64_t symbols = aq_symbols(dimension, plan->table.pairs);
    int32_t exponent = LEAST_EXPONENT, kind = 2;
    while (exponent < MOST_EXPONENT && content * (double)(1 << exponent) < CHUNK_BITS * (double)symbols) exponent++;
    int64_t chunks = ((symbols - 1) >> exponent) + 1;
    while (kind > 0 && (double)(STATE_BYTES * lanes[kind] * chunks) > share[kind] * content / 8) kind--;
    plan->lanes = lanes[kind];
    plan->exponent = exponent;
    plan->head[0] = (uint8_t)(plan->table.pairs | kind << 4);
    plan->head[1] = (uint8_t)exponent;
    plan->head_size = write_table(&plan->table, top, plan->head, 2);
    plan->size = content / 8 + (double)plan->head_size + (double)((STATE_BYTES * lanes[kind] + 3) * chunks);
}

static void plan_pairs(const aq_census *census, aq_dense_plan *plan, int64_t *remains) {
    aq_table *table = &plan->table;
    int32_t t = table->pairs = census->largest;
    table->count = 0;
    for (int32_t a = -t; a <= t; a++)
        for (int32_t b = -t; b <= t; b++) {
            table->lowest[table->count] = symbol_of_pair(a, b);
            table->width[table->count] = 0;
            table->elements[table->count] = census->pairs[(a & 15) + 16 * (b & 15)];
            table->count += table->elements[table->count] > 0;
        }
    plan_of(plan, shares(table, remains), census->dimension, census->top);
}

static void plan_levels(aq_census *census, int32_t widest, aq_dense_plan *plan, const nodes *n, int64_t *remains) {
    double price = 1;
    plan->table.pairs = 0;
    do { /* where they are too many, places in the table become dearer */
        plan->table.count = intervals(census, widest, price, n, &plan->table);
        price *= 4;
    } while (plan->table.count > AQ_SLOTS);
    plan_of(plan, shares(&plan->table, remains), census->dimension, census->top);
}

int32_t aq_dense_choose(aq_census *census, double entropy, aq_dense_plan *plan, aq_arena *arena, aq_error *error) {
    uint64_t levels = (uint64_t)census->levels, most = (uint64_t)aq_least(2 * census->top + 1, AQ_SLOTS);
    if (most < 225) most = 225;
    aq_table_take(&plan->table, census->top, arena);
    plan->head = aq_take(arena, 2 + MOST_BYTES * most);
    aq_arena mine = *arena;
    int64_t *remains = aq_take(&mine, 8 * most);
    nodes n = {aq_take(&mine, 4 * levels), aq_take(&mine, 4 * levels), aq_take(&mine, 8 * levels),
               aq_take(&mine, 8 * levels), aq_take(&mine, levels)};
    if (aq_lacks(&mine, error)) return AQ_MEMORY;
    double limit = SLACK * entropy / 8 + FEW_BYTES;
    if (census->largest) {
        plan_pairs(census, plan, remains);
        if (plan->size <= limit) return AQ_FINE;
    }
    if ((int64_t)census->level[levels - 1] - census->level[0] < MOST_SPAN || 2 * census->top + 1 <= MOST_SPAN) {
        plan_levels(census, AQ_MOST_WIDTH, plan, &n, remains);
        if (plan->size <= limit) return AQ_FINE;
    }
    plan_levels(census, AQ_WIDEST, plan, &n, remains);
    return AQ_FINE;
}
