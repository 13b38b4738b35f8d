/* Frames of quantized vectors: docs/wire-format.md has the bytes, this file what can be done with them.
 *
 * No function allocates, keeps state or calls the C library's mathematics, so that every machine writes the same bytes.
 * Memory for results in between is the caller's: a function that lacks some returns AQ_MEMORY, error->numbers[0] says
 * how many bytes it needs, and nothing has happened. Functions return 0 (AQ_FINE) or what is wrong; those that write
 * frames return the frame's size, or what is wrong as a negative number.
 */
#ifndef AQ_H
#define AQ_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define AQ_API __declspec(dllexport)
#else
#define AQ_API __attribute__((visibility("default")))
#endif

enum aq_codec { AQ_FIXED = 0, AQ_SPARSE = 1, AQ_DENSE = 2, AQ_RAW = 255, AQ_AUTO = 256 };
enum aq_norm { AQ_L2 = 0, AQ_LINF = 1 };

typedef struct {
    uint8_t *data; /* aligned to 64 bytes */
    uint64_t size;
} aq_memory;

/* How work is shared: calls work(context, first, last) on ranges that cover 0 to units, none shorter than `smallest`
 * but the last, in any order and perhaps at the same time. NULL stands for one call on everything. */
typedef void (*aq_work)(void *context, int64_t first, int64_t last);
typedef void (*aq_each)(aq_work work, void *context, int64_t units, int64_t smallest);

/* What is wrong, and the numbers that a sentence about it needs. */
typedef struct {
    int32_t code;
    int32_t unused;
    int64_t numbers[4];
    double real[2];
} aq_error;

enum aq_code {
    AQ_FINE,
    AQ_MEMORY,     /* bytes that are needed */
    AQ_ROOM,       /* the frame does not fit the memory for it */
    /* headers */
    AQ_SHORT,      /* bytes, bytes that a frame has at least */
    AQ_MAGIC,      /* the first four bytes */
    AQ_VERSION,    /* version, version that is read */
    AQ_TRUNCATED,  /* bytes of the body, bytes of the message */
    AQ_CHECKSUM,
    AQ_SIZE,       /* bytes, bytes by the header */
    AQ_QUANTIZER,  /* tag */
    AQ_CODEC,      /* tag */
    AQ_DIMENSION,  /* dimension, expected */
    AQ_TOO_LARGE,  /* dimension */
    AQ_FLOATS,     /* a header of float32 values that is not one */
    AQ_NO_SCALES,
    AQ_MANY_SCALES, /* scales, bytes, dimension */
    AQ_NO_SEGMENTS, /* scales */
    AQ_BUCKETS,    /* size, scales, dimension */
    AQ_LAYOUT,     /* layout */
    AQ_LENGTHS,    /* elements in segments, dimension */
    AQ_NUMBER,     /* a varint is too long */
    AQ_NUMBER_END, /* the message ends within a varint */
    AQ_SCALES_END,
    AQ_KEY_END,
    AQ_PADDING,    /* behind the header */
    AQ_LEVELS,     /* s, most */
    AQ_SCALE,
    AQ_FURTHER,    /* the further number is outside its range */
    AQ_BLOCKS,     /* segments cannot be rotated */
    AQ_BOUND,      /* real: largest scale, what an element could decode to */
    AQ_SHORT_FORM, /* too few bytes, or no levels */
    AQ_FLAGS,      /* first byte of a short frame */
    AQ_MANY_SEGMENTS, /* segments, bytes */
    AQ_NO_KEY,
    /* bodies */
    AQ_FIXED_SIZE, /* bytes, dimension, s, bytes that it needs */
    AQ_FIXED_BITS, /* unused bits of the last byte */
    AQ_FIXED_LEVEL, /* level, s */
    AQ_SHIFT,      /* first byte of a sparse body, or -1 */
    AQ_DIRECTORY,  /* chunks, bytes */
    AQ_DIRECTORY_NUMBER, /* AQ_NUMBER or AQ_NUMBER_END */
    AQ_DIRECTORY_SHORT,  /* bytes behind the directory */
    AQ_DIRECTORY_LONG,   /* the same, where bytes are left over */
    AQ_DIRECTORY_COUNT,  /* chunk, levels that it cannot hold, its elements, its bytes */
    AQ_CHUNK,      /* chunk, what is wrong: enum aq_chunk */
    AQ_STATES,     /* first byte of a dense body */
    AQ_EXPONENT,   /* of the symbols in a chunk */
    AQ_DENSE_SIZE, /* bytes, dimension, bytes at least */
    AQ_TABLE_END,
    AQ_TABLE_NUMBER,
    AQ_TABLE_WIDTH, /* width */
    AQ_TABLE_COUNT, /* intervals, width, level, s */
    AQ_TABLE_SUM,
    AQ_TABLE_PADDING,
    AQ_PAIRS,      /* largest level of pairs, s */
    AQ_PAIRS_SUM,  /* sum */
    AQ_STREAMS,    /* bytes of the streams, bytes that follow the table */
    AQ_STREAM,     /* chunk */
    AQ_LOW_BITS,   /* bytes behind the streams */
    AQ_RAW_SIZE,   /* bytes, scales, dimension */
    AQ_RAW_FINITE,
    AQ_NOT_LEVELS, /* a frame of float32 values where levels are expected */
    /* sums and vectors */
    AQ_WEIGHT,     /* real: what values reach, the weight */
    AQ_SUM,        /* real: what the sum could reach */
    AQ_NOT_LINEAR, /* levels alone do not make the vector: decode, and use the quantizer */
    AQ_NOT_FINITE, /* a vector has NaN or infinite elements */
    AQ_NORM,       /* real: the largest norm, beyond float32 */
    AQ_STRETCH     /* real: the largest norm, the largest stretch: together beyond float32 */
};
enum aq_chunk { AQ_RUNS_OUT = 1, AQ_BEYOND_CHUNK, AQ_TOO_MANY, AQ_ABOVE_S, AQ_TRAILING, AQ_CHUNK_PADDING };

/* What a quantizer's frames look like. aq_traits_of knows those of format 1; others are passed by who knows them. */
typedef struct {
    uint32_t most;     /* the largest s */
    int32_t linear;    /* an element is its level times its segment's step */
    int32_t divides;   /* that step is scale / s, or the scale itself */
    int32_t keyed;     /* a receiver needs the stream key */
    int32_t rotates;   /* segments are blocks of 2^k elements */
    int32_t numbered;  /* one more number, from least to highest */
    float least, highest;
    int32_t reach, beyond; /* the largest level is reach s + beyond */
    double clip;           /* where it is not 0, the largest level is clip s / number instead, rounded up */
} aq_traits;

AQ_API const aq_traits *aq_traits_of(int32_t quantizer); /* NULL where it is unknown */

/* What a receiver knows of a frame before it comes, and a sender may leave out. */
typedef struct {
    const int64_t *offsets; /* of the segments, and the dimension; NULL: one norm for all */
    int64_t segments;
    uint64_t dimension, key;
    int32_t quantizer;
    int32_t keyed; /* whether the key is known */
} aq_known;

/* A frame's facts, and where its parts are, in bytes from its beginning. */
typedef struct {
    uint64_t dimension, scales /* how many */, key, bucket;
    uint64_t lengths_at, scales_at, body_at, body_size, size;
    int64_t top; /* the largest magnitude of a level */
    double bound; /* what no element can exceed in size, where the quantizer is linear */
    float number, largest_scale;
    uint32_t s;
    int32_t quantizer, codec, layout, whole /* it says everything about itself, and has a checksum */, segmented;
} aq_header;

/* Check a frame, checksum included, all but its body. dimension: what is expected, or 0. known, traits: or NULL. */
AQ_API int32_t aq_check(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known,
                        const aq_traits *traits, aq_header *header, aq_error *error);
/* Where the segments of a checked frame begin, and the dimension: scales + 1 numbers. */
AQ_API void aq_offsets(const uint8_t *frame, const aq_header *header, const aq_known *known, int64_t *offsets);

/* What a frame to be written says about itself. */
typedef struct {
    int32_t quantizer, codec; /* codec may be AQ_AUTO */
    uint32_t s;
    int32_t segmented, keyed, numbered;
    float number;
    uint64_t dimension, key;
    const int64_t *offsets; /* of the segments, and the dimension */
    int64_t segments;       /* 1 where they are not written */
    const float *scales;
    const aq_known *known;
    int64_t top;
    aq_memory memory;
    uint8_t *out;
    uint64_t room;
    aq_each each;
} aq_plan;

/* A frame with a body that is there already. */
AQ_API int64_t aq_frame(const aq_plan *plan, const uint8_t *body, uint64_t size, aq_error *error);
/* Bytes of a frame of the fixed code that says everything about itself: a caller can have memory of that size ready. */
AQ_API uint64_t aq_fixed_frame(const aq_plan *plan);
/* Levels from -top to top, each of 1, 2 or 4 bytes, to a frame. They are not checked. */
AQ_API int64_t aq_encode(const aq_plan *plan, const void *values, int32_t bytes, aq_error *error);
/* Floats to a frame of the paper's quantizer (tags 0 and 1): the bytes of aq_encode(aq_quantize(...)). The plan's scales
 * are not used. stretch: one for all segments (stretches == 1), or one for each. */
AQ_API int64_t aq_compress(const aq_plan *plan, const float *x, const double *stretch, int64_t stretches,
                           aq_error *error);
/* The levels of a checked frame; values == NULL: its body is only checked. */
AQ_API int32_t aq_decode(const uint8_t *frame, const aq_header *header, void *values, int32_t bytes, aq_memory memory,
                         aq_each each, aq_error *error);
/* total += weight x the frame's vector, or nothing where the frame is refused. bound: what no element of the sum can
 * exceed in size; it is added to. AQ_NOT_LINEAR where levels alone do not make the vector. */
AQ_API int32_t aq_add(const uint8_t *frame, uint64_t size, uint64_t dimension, const aq_known *known, double weight,
                      float *total, double *bound, aq_memory memory, aq_each each, aq_error *error);

/* Sums of squares of segments, in double; AQ_NOT_FINITE where a sum is not finite. */
AQ_API int32_t aq_squares(const float *x, const int64_t *offsets, int64_t segments, double *sums, aq_memory memory,
                          aq_each each, aq_error *error);
/* The largest magnitude of each segment. */
AQ_API int32_t aq_largest(const float *x, const int64_t *offsets, int64_t segments, float *largest, aq_memory memory,
                          aq_each each, aq_error *error);

/* A vector to signed levels of 1, 2 or 4 bytes each. */
typedef struct {
    const float *x;
    const int64_t *offsets; /* of the segments, and the dimension */
    int64_t segments;
    const double *inverse; /* levels per unit of each segment: s / scale, or 1 / rms where blocks are rotated; or 0 */
    uint64_t key;
    int64_t top;
    uint32_t s;
    int32_t bytes;
    void *values;
    aq_each each;
} aq_rounding;

/* The paper's rounding (eq. 5); scales: of each segment. */
AQ_API int32_t aq_round_random(const aq_rounding *plan, const float *scales, aq_memory memory, aq_error *error);
AQ_API void aq_round_nearest(const aq_rounding *plan);   /* halves to the even one */
AQ_API void aq_round_exponents(const aq_rounding *plan); /* natural dithering: level k is 2^(k - s) of the norm */
AQ_API void aq_round_lattice(const aq_rounding *plan);   /* pairs on a hexagonal lattice, with dither */
/* Multiples of each segment's step (in units of its rms); dots[b] = <|y|, centres> / rms. centres: of levels 0 to top. */
AQ_API void aq_round_steps(const aq_rounding *plan, const double *steps, const double *centres, double *dots);
/* The nearest of s centres, numbered from 1; edges: the s - 1 between them. */
AQ_API void aq_round_centres(const aq_rounding *plan, const double *edges, const double *centres, double *dots);
/* The lattice's points without their dither, times each segment's step. */
AQ_API void aq_lattice_points(const aq_rounding *plan, const double *steps, float *out);

/* H D x of every segment, each of 2^k elements, or D H x. */
AQ_API void aq_rotate(const float *x, const int64_t *offsets, int64_t segments, uint64_t key, int32_t forward,
                      float *out, aq_each each);

AQ_API uint32_t aq_checksum(uint32_t before, const uint8_t *data, uint64_t size); /* CRC-32, as zlib's */

/* Vectors of the processor that are used: 0 portable, 1 AVX2, 2 AVX-512. The best is chosen when the library is loaded;
 * aq_use is for tests. Returns what is used from now on. */
AQ_API int32_t aq_use(int32_t vectors);

#endif
