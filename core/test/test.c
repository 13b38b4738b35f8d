/* The core alone, without Python: golden frames, corners and damage, for every vector set of this processor.
 *
 *     test tests/codecs/golden
 *
 * Prints how much was tested, or what does not hold, and then its exit code is not 0. */
#include "call.h"

enum { MOST = 1 << 20 };
extern int32_t aq_vectors;
static const int32_t CODECS[] = {AQ_FIXED, AQ_SPARSE, AQ_DENSE, AQ_AUTO};
static int64_t golden_frames, round_trips, damaged, harmless;

static uint8_t *file(const char *folder, const char *name, const char *ending, uint64_t *size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
    FILE *stream = fopen(path, "rb");
    if (!stream) perror(path), exit(2);
    fseek(stream, 0, SEEK_END);
    *size = (uint64_t)ftell(stream);
    rewind(stream);
    uint8_t *data = calloc(*size + 1, 1);
    EXPECT(fread(data, 1, *size, stream) == *size);
    fclose(stream);
    return data;
}

static uint64_t random_number(void) { /* splitmix64 */
    static uint64_t state;
    uint64_t x = state += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

/* Every truncation is refused. A changed byte with a right checksum is refused, or read alike by both decoders. */
static void damage(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known) {
    uint64_t stride = 1 + size * (size + dimension) / 1000000; /* of large ones not every byte, which takes long */
    aq_header h;
    aq_error error = {0};
    for (uint64_t length = 0; length < size; length += stride, damaged++) {
        uint8_t *shorter = malloc(length + 1); /* its end is the memory's, for the sanitizer */
        memcpy(shorter + 1, frame, length);
        if (known) agree(shorter + 1, length, MOST, known, NULL);
        else EXPECT(aq_check(shorter + 1, length, 0, NULL, NULL, &h, &error));
        free(shorter);
    }
    uint8_t *changed = malloc(size);
    for (uint64_t place = 0; place < size; place += stride)
        for (int k = 0; k < 4; k++, damaged++) {
            memcpy(changed, frame, size);
            changed[place] ^= (uint8_t[]){1, 128, 255, 1u << random_number() % 8}[k];
            if (!known) {
                EXPECT(aq_check(changed, size, 0, NULL, NULL, &h, &error));
                uint32_t crc = naive_crc(changed, size - 4);
                EXPECT(crc == aq_checksum(0, changed, size - 4));
                memcpy(changed + size - 4, &crc, 4);
            }
            harmless += agree(changed, size, MOST, known, in_pieces);
        }
    free(changed);
}

/* These levels come back from this frame, also from its short form; adding it gives their values. */
static void read_back(const aq_plan *plan, const uint8_t *frame, uint64_t size, const int32_t *levels) {
    aq_header h;
    aq_error error = {0};
    naive_frame naive;
    EXPECT(!aq_check(frame, size, plan->dimension, plan->known, NULL, &h, &error));
    EXPECT(h.size == size && agree(frame, size, MOST, plan->known, NULL));
    EXPECT(agree(frame, size, MOST, plan->known, in_pieces));
    if (plan->known) return;
    EXPECT(naive_read(frame, size, MOST, NULL, &naive));
    EXPECT(!memcmp(naive.values, levels, plan->dimension * sizeof *levels));
    naive_free(&naive);
    if (!aq_traits_of(h.quantizer)->linear) return;
    float *total = calloc(plan->dimension, sizeof *total);
    double bound = 0;
    EXPECT(!add(frame, size, plan->dimension, NULL, -2.0, total, &bound, in_pieces));
    for (uint64_t i = 0, j = 0; i < plan->dimension; i++) {
        while (plan->segmented && (int64_t)i >= plan->offsets[j + 1]) j++;
        double exact = -2.0 * plan->scales[j] * levels[i] / (h.quantizer == 11 ? 1 : plan->s), off = total[i] - exact;
        EXPECT(off * off <= 1e-12 * exact * exact && total[i] <= bound && -total[i] <= bound);
    }
    free(total);
}

/* Levels in every width that holds them become the same bytes; returns the frame. */
static uint8_t *write_all(aq_plan plan, const int32_t *levels, uint64_t *size) {
    uint64_t d = plan.dimension, others;
    int8_t *small = malloc(d);
    int16_t *medium = malloc(2 * d);
    for (uint64_t i = 0; i < d; i++) small[i] = (int8_t)levels[i], medium[i] = (int16_t)levels[i];
    uint8_t *frame = encode(plan, levels, 4, NULL, size);
    plan.each = in_pieces;
    for (int32_t bytes = level_bytes(plan.top); bytes <= 4; bytes *= 2) {
        const void *values = bytes == 1 ? (void *)small : bytes == 2 ? (void *)medium : (void *)levels;
        uint8_t *other = encode(plan, values, bytes, NULL, &others);
        EXPECT(others == *size && !memcmp(frame, other, others));
        free(other);
    }
    free(small), free(medium);
    return frame;
}

/* -- golden frames. A line of expected.json is a frame. */

static const char *field(const char *line, const char *name) {
    const char *at = strstr(line, name);
    return at ? at + strlen(name) : "";
}

static uint64_t numbers(const char *list, double *out, uint64_t most) { /* of a list, however nested */
    uint64_t count = 0;
    for (int depth = 0; *list;) {
        char *end;
        double number = strtod(list, &end);
        depth += (*list == '[') - (*list == ']');
        if (end != list && count < most) out[count++] = number;
        if (!depth) break;
        list = end != list ? end : list + 1;
    }
    return count;
}

static void golden(const char *folder, const char *line) {
    static double found[200000];
    static int32_t levels[MOST];
    static float x[200000];
    char name[100], codec[100];
    uint64_t size, made;
    aq_header h;
    aq_error error = {0};
    EXPECT(sscanf(line, "\"%99[^\"]\": {\"codec\": \"%99[^\"]\"", name, codec) == 2);
    uint8_t *frame = file(folder, name, ".bin", &size);
    snprintf(tested, sizeof tested, "%s with vectors %d", name, (int)aq_vectors);
    EXPECT(!aq_check(frame, size, 0, NULL, NULL, &h, &error));
    golden_frames++;
    if (h.codec == AQ_RAW) {
        double bound = 0;
        uint64_t d = numbers(field(line, "\"x\": "), found, MOST);
        memset(x, 0, d * sizeof *x);
        EXPECT(d == h.dimension && add(frame, size, d, NULL, 0.5, x, &bound, NULL) == AQ_FINE);
        for (uint64_t i = 0; i < d; i++) EXPECT(x[i] == (float)(0.5 * found[i]));
        free(frame);
        return;
    }
    float scales[16];
    int64_t offsets[17], d = 0;
    uint64_t runs = numbers(field(line, "\"runs\": "), found, 200000);
    for (uint64_t k = 0; k < runs; k += 2)
        for (uint64_t i = 0; i < (uint64_t)found[k + 1]; i++) levels[d++] = (int32_t)found[k];
    EXPECT(h.scales <= 16 && numbers(field(line, "\"scales\": "), found, 16) == h.scales);
    for (uint64_t j = 0; j < h.scales; j++) scales[j] = (float)found[j];
    EXPECT((uint64_t)d == h.dimension && h.s == strtoul(field(line, "\"s\": "), NULL, 10));
    aq_offsets(frame, &h, NULL, offsets);
    const aq_traits *traits = aq_traits_of(h.quantizer);
    aq_plan plan = {.quantizer = h.quantizer, .codec = !strcmp(codec, "auto") ? AQ_AUTO : h.codec, .s = h.s,
                    .segmented = h.segmented, .keyed = traits->keyed, .numbered = traits->numbered,
                    .number = h.number, .dimension = h.dimension, .key = h.key, .offsets = offsets,
                    .segments = (int64_t)h.scales, .scales = scales, .top = h.top};
    uint8_t *written = write_all(plan, levels, &made);
    EXPECT(made == size && !memcmp(frame, written, size));
    free(written);
    read_back(&plan, frame, size, levels);
    if (numbers(field(line, "\"x\": "), found, 200000) == h.dimension) {
        for (int64_t i = 0; i < d; i++) x[i] = (float)found[i];
        plan.key = strtoull(field(line, "\"key\": "), NULL, 10);
        written = encode(plan, NULL, 0, x, &made);
        EXPECT(made == size && !memcmp(frame, written, size));
        free(written);
        plan.key = h.key;
    }
    damage(frame, size, plan.dimension, NULL);
    aq_known known = {h.segmented ? offsets : NULL, (int64_t)h.scales, h.dimension, h.key, h.quantizer, traits->keyed};
    plan.known = &known;
    written = encode(plan, levels, 4, NULL, &made);
    EXPECT(made < size || h.body_size > 65536);
    read_back(&plan, written, made, levels);
    if (written[0] < 8) damage(written, made, plan.dimension, &known);
    free(written), free(frame);
}

/* -- corners: short and long vectors, few and many levels, empty and full ones */

static void corner(uint64_t d, uint32_t s, uint32_t per_mille) {
    int32_t *levels = calloc(d, sizeof *levels);
    snprintf(tested, sizeof tested, "%d elements, s = %d, %d/1000 of them, vectors %d", (int)d, (int)s, (int)per_mille,
             (int)aq_vectors);
    int64_t offsets[3] = {0, (int64_t)d / 2, (int64_t)d};
    float scales[2] = {1.5f, 1e-30f};
    for (uint64_t i = 0; i < d; i++) {
        uint64_t random = random_number();
        int32_t most = random >> 63 ? (int32_t)s : 1; /* small levels, and all of them */
        if (random % 1000 < per_mille) levels[i] = (int32_t)((random >> 20) % (2 * (uint64_t)most + 1)) - most;
    }
    aq_plan plan = {.s = s, .dimension = d, .offsets = offsets, .segments = 1, .scales = scales, .top = s};
    for (int k = 0; k < 4; k++, round_trips++) {
        uint64_t size;
        plan.codec = CODECS[k], plan.quantizer = 12;
        plan.segmented = d > 1 && s % 2, plan.segments = 1 + plan.segmented;
        uint8_t *frame = write_all(plan, levels, &size);
        read_back(&plan, frame, size, levels);
        if (size < 100 && per_mille > 3) damage(frame, size, plan.dimension, NULL);
        free(frame);
    }
    free(levels);
}

int main(int count, char **arguments) {
    static const uint64_t lengths[] = {1, 2, 3, 31, 33, 1023, 1024, 1025, 3000, 65536, 70001, 140000};
    static const uint32_t levels[] = {1, 2, 3, 7, 127, 128, 32767, 65535};
    static const uint32_t shares[] = {0, 3, 100, 1000};
    if (count != 2) return fprintf(stderr, "usage: %s tests/codecs/golden\n", arguments[0]), 2;
    int32_t most = aq_use(-1);
    for (int32_t vectors = 0; vectors <= most; vectors++) {
        EXPECT(aq_use(vectors) == vectors);
        uint64_t size;
        char *expected = (char *)file(arguments[1], "expected", ".json", &size), *rest = expected;
        for (char *line = rest; *line; line = rest) {
            rest = line + strcspn(line, "\n");
            if (*rest) *rest++ = 0;
            if (*line == '"') golden(arguments[1], line);
        }
        free(expected);
        for (int i = 0; i < 12; i++)
            for (int j = 0; j < 8; j++)
                for (int k = 0; k < 4; k++)
                    if (lengths[i] < 60000 || (i + j + k + vectors) % 7 == 0) corner(lengths[i], levels[j], shares[k]);
    }
    printf("Vectors 0 to %d: %lld golden frames, %lld round trips, %lld damaged frames (%lld of them can be read).\n",
           (int)most, (long long)golden_frames, (long long)round_trips, (long long)damaged, (long long)harmless);
    return 0;
}
