/* What libFuzzer calls, for one of the targets below: -DTARGET=its name. `make fuzz` builds and runs them all.
 *
 * A finding is what the sanitizers find, and an EXPECT that does not hold. The input's size says which vectors are used
 * and whether work is cut into pieces, so that all are fuzzed. */
#include "../test/call.h"

enum { MOST = 1 << 17 };   /* elements; above 65,536 a body may have two chunks */
extern int32_t aq_vectors; /* set here because aq_use asks the processor, which is slow in a virtual machine */

static aq_each setting(size_t size) {
    static int32_t most = -1;
    if (most < 0) most = aq_use(-1);
    aq_vectors = (int32_t)(size % (size_t)(most + 1));
    return size / 3 % 2 ? in_pieces : NULL;
}

/* Elements of a vector: long ones take most of the time, and most of them look alike. */
static uint32_t longest(size_t size) { return size % 64 ? 2048 : MOST; }

typedef struct {
    const uint8_t *data;
    size_t left;
} input;

static uint32_t next(input *in, int bytes) { /* 0 behind the end */
    uint32_t number = 0;
    for (; bytes; bytes--, in->left -= in->left > 0) number = number << 8 | (in->left ? *in->data++ : 0);
    return number;
}

/* -- frames at any address, with a right checksum */

static uint8_t *copied(const uint8_t *data, size_t size) {
    uint8_t *memory = malloc(size + size % 8);
    memcpy(memory + size % 8, data, size);
    return memory;
}

static void make_right(uint8_t *frame, size_t size) {
    if (size < 4) return;
    uint32_t crc = aq_checksum(0, frame, size - 4);
    memcpy(frame + size - 4, &crc, 4);
}

static void read_levels(const uint8_t *frame, const aq_header *h, aq_each each) {
    int32_t bytes = level_bytes(h->top);
    int8_t *values = malloc(h->dimension * (uint64_t)bytes);
    int32_t wrong = decode(frame, h, values, bytes, each);
    EXPECT(wrong == decode(frame, h, NULL, bytes, NULL));
    for (uint64_t i = 0; !wrong && i < h->dimension; i++) {
        int32_t level = level_at(values, bytes, i);
        EXPECT(level <= h->top && -level <= h->top);
    }
    free(values);
}

static void check_and_read(const uint8_t *frame, size_t size, const aq_known *known) {
    aq_header h;
    aq_error error = {0};
    if (!aq_check(frame, size, 0, known, NULL, &h, &error) && h.dimension <= longest(size)) {
        int64_t *offsets = malloc((h.scales + 1) * sizeof *offsets);
        if (h.codec != AQ_RAW) aq_offsets(frame, &h, known, offsets);
        EXPECT(h.codec == AQ_RAW || offsets[h.scales] == (int64_t)h.dimension);
        free(offsets);
        read_levels(frame, &h, setting(size));
    }
}

/* A sum that a frame is refused for stays as it was; otherwise it is within its bound. */
static void check_and_add(const uint8_t *frame, size_t size, const aq_known *known, uint64_t dimension) {
    if (dimension > longest(size)) return;
    float *total = malloc(dimension * sizeof *total);
    double bound = 0.25, before = bound;
    for (uint64_t i = 0; i < dimension; i++) total[i] = 0.25f;
    int32_t wrong = add(frame, size, dimension, known, -3.5, total, &bound, setting(size));
    EXPECT(!wrong || bound == before);
    for (uint64_t i = 0; i < dimension; i++)
        EXPECT(wrong ? total[i] == 0.25f : total[i] <= bound * 1.000001 && -total[i] <= bound * 1.000001);
    free(total);
}

static uint64_t dimension_of(const uint8_t *frame, size_t size) {
    uint64_t dimension = 1;
    if (size >= 24) memcpy(&dimension, frame + 16, 8);
    return dimension < 1 || dimension > MOST ? 1 : dimension;
}

enum what { READ, ADD, COMPARE };

static void frame_to(enum what what, const uint8_t *frame, size_t size, const aq_known *known) {
    if (what == READ) check_and_read(frame, size, known);
    if (what == ADD) check_and_add(frame, size, known, known ? known->dimension : dimension_of(frame, size));
    if (what == COMPARE) agree(frame, size, longest(size), known, setting(size));
}

static void whole_to(enum what what, const uint8_t *data, size_t size) {
    uint8_t *memory = copied(data, size);
    make_right(memory + size % 8, size);
    frame_to(what, memory + size % 8, size, NULL);
    free(memory);
}

/* The first bytes say what is known: quantizer, dimension, whether the key is, and up to seven segments. */
static void short_to(enum what what, const uint8_t *data, size_t size) {
    input in = {data, size};
    int64_t offsets[9] = {0};
    uint32_t bits = next(&in, 1), segments = bits >> 4 & 7;
    aq_known known = {.quantizer = (int32_t)(bits % 16), .keyed = bits >> 7, .key = 7, .dimension = 1 + next(&in, 2)};
    for (uint32_t j = 0; j < segments; j++) {
        int64_t rest = (int64_t)known.dimension - offsets[j], length = 1 + (int64_t)next(&in, 1) * (rest / 64 + 1);
        known.segments = j + 1, known.offsets = offsets;
        offsets[j + 1] = j + 1 == segments || length >= rest ? (int64_t)known.dimension : offsets[j] + length;
        if (offsets[j + 1] == (int64_t)known.dimension) break;
    }
    uint8_t *memory = copied(in.data, in.left);
    if (in.left && in.data[0] >= 8) make_right(memory + in.left % 8, in.left);
    frame_to(what, memory + in.left % 8, in.left, &known);
    free(memory);
}

/* The first bytes are the largest level and the dimension of a body. */
static void body_to(enum what what, int32_t codec, const uint8_t *data, size_t size) {
    input in = {data, size};
    uint32_t top = 1 + next(&in, 2) % 65535, dimension = 1 + next(&in, 3) % longest(size);
    if (codec == AQ_FIXED) { /* its size follows from them: only one of many would be right */
        uint32_t bits = 2;
        while (top >> (bits - 1)) bits++;
        if (dimension % 16 && in.left) dimension = (uint32_t)(8 * in.left / bits) + (in.left < bits);
    }
    aq_header h = {.dimension = dimension, .scales = 1, .body_size = in.left, .size = in.left, .top = top, .s = top,
                   .codec = codec};
    float scale = 1;
    if (what == READ) {
        uint8_t *memory = copied(in.data, in.left);
        read_levels(memory + in.left % 8, &h, setting(size));
        free(memory);
    } else {
        aq_error error = {0};
        uint8_t *frame = malloc(in.left + 64);
        aq_plan plan = {.codec = codec, .s = top, .top = top, .dimension = dimension, .scales = &scale, .segments = 1,
                        .out = frame, .room = in.left + 64};
        int64_t made = aq_frame(&plan, in.data, in.left, &error);
        EXPECT(made > 0);
        frame_to(what, frame, (size_t)made, NULL);
        free(frame);
    }
}

/* -- levels and floats to frames and back */

static uint64_t levels_from(input *in, int32_t s, uint32_t stride, int32_t *levels, uint64_t most) {
    uint64_t d = 0;
    int32_t last = 0;
    while (in->left && d < most) {
        uint32_t byte = next(in, 1), more = byte >> 2, times = 1;
        if (byte % 4 == 0) last = 0, times = 1 + more * stride; /* a run of zeros */
        if (byte % 4 == 1) last = (int32_t)more - 32;           /* a small level */
        if (byte % 4 == 2) last = (int32_t)((more << 16 | next(in, 2)) % (2 * (uint32_t)s + 1)) - s;
        if (byte % 4 == 3) times = 1 + more; /* the last one again */
        last = last > s ? s : last < -s ? -s : last;
        for (; times && d < most; times--) levels[d++] = last;
    }
    return d;
}

static void roundtrip_of(const uint8_t *data, size_t size) {
    static int32_t levels[MOST];
    static float x[MOST];
    static const int32_t codecs[] = {AQ_FIXED, AQ_SPARSE, AQ_DENSE, AQ_AUTO};
    input in = {data, size};
    uint32_t s = 1 + next(&in, 2) % 65535, stride = next(&in, 1), floats = stride % 2;
    uint64_t d = levels_from(&in, (int32_t)s, stride, levels, longest(size)), made;
    float scale = 1, norm = 1;
    if (!d) return;
    for (uint64_t i = 0; i < d; i++) x[i] = (float)levels[i];
    aq_plan plan = {.quantizer = 1, .s = s, .top = s, .dimension = d, .scales = &norm, .segments = 1, .key = size};
    int32_t bytes = level_bytes(plan.top), *expected = floats ? NULL : levels;
    for (int k = 0; k < 4; k++) {
        plan.codec = codecs[k], plan.each = setting(size + (size_t)k);
        uint8_t *frame = encode(plan, levels, 4, floats ? x : NULL, &made);
        aq_header h;
        aq_error error = {0};
        EXPECT(!aq_check(frame, made, d, NULL, NULL, &h, &error));
        void *values = malloc(d * (uint64_t)bytes);
        EXPECT(!decode(frame, &h, values, bytes, plan.each));
        memcpy(&scale, frame + h.scales_at, 4);
        for (uint64_t i = 0; i < d; i++) {
            int32_t level = level_at(values, bytes, i); /* of floats: the first codec's, whose levels all others have */
            if (!expected) levels[i] = level;
            EXPECT(level == levels[i]);
            EXPECT(!floats || (x[i] - scale / (float)s * (float)level) * (float)s <= 1.001f * scale);
        }
        expected = levels;
        free(values), free(frame);
    }
}

static void fixed(const uint8_t *data, size_t size) { body_to(READ, AQ_FIXED, data, size); }
static void sparse(const uint8_t *data, size_t size) { body_to(READ, AQ_SPARSE, data, size); }
static void dense(const uint8_t *data, size_t size) { body_to(READ, AQ_DENSE, data, size); }
static void whole(const uint8_t *data, size_t size) { whole_to(READ, data, size); }
static void known(const uint8_t *data, size_t size) { short_to(READ, data, size); }
static void sum(const uint8_t *data, size_t size) { size % 2 ? whole_to(ADD, data, size) : short_to(ADD, data, size); }
static void roundtrip(const uint8_t *data, size_t size) { roundtrip_of(data, size); }
static void naive(const uint8_t *data, size_t size) { /* the last byte says which form it has */
    int form = size ? data[--size] % 8 : 0;
    if (form < 3) body_to(COMPARE, form, data, size);
    else if (form < 6) whole_to(COMPARE, data, size);
    else short_to(COMPARE, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    (void)fixed, (void)sparse, (void)dense, (void)whole, (void)known, (void)sum, (void)roundtrip, (void)naive;
    TARGET(data, size);
    return 0;
}
