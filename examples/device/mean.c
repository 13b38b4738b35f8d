/* Print the mean of the vector in a frame, on a device without Python: mean FRAME
 * docs/how-to/transport.md says how to compile it. */
#include <stdio.h>
#include <stdlib.h>

#include "aq.h"

enum { MOST = 10000000 }; /* elements that this device has memory for: the frame may claim more */

static uint8_t *read_file(const char *path, uint64_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return NULL;
    *size = (uint64_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*size + 1);
    if (data && fread(data, 1, *size, file) != *size) data = NULL;
    fclose(file);
    return data;
}

static int refused(const char *path, const aq_error *error) {
    fprintf(stderr, "%s is refused: code %d of enum aq_code in core/aq.h.\n", path, (int)error->code);
    return 1;
}

int main(int count, char **arguments) {
    const char *path = count == 2 ? arguments[1] : "";
    uint64_t size = 0;
    uint8_t *frame = read_file(path, &size);
    aq_error error = {0};
    aq_header header;
    if (!frame) return fprintf(stderr, "'%s' cannot be read. Usage: mean FRAME\n", path), 2;
    if (aq_check(frame, size, 0, NULL, NULL, &header, &error)) return refused(path, &error);
    if (header.dimension > MOST) return fprintf(stderr, "%s has more than %d elements.\n", path, MOST), 1;

    /* The sum of one frame with weight 1 is its vector. The core says how much memory it needs for that. */
    float *vector = calloc(header.dimension, sizeof *vector);
    aq_memory memory = {NULL, 0};
    double bound = 0, sum = 0;
    int32_t wrong;
    while (vector && (wrong = aq_add(frame, size, header.dimension, NULL, 1.0, vector, &bound, memory, NULL, &error))) {
        if (wrong != AQ_MEMORY) return refused(path, &error);
        memory.size = ((uint64_t)error.numbers[0] + 63) / 64 * 64;
        free(memory.data);
        memory.data = aligned_alloc(64, memory.size);
        if (!memory.data) return fprintf(stderr, "There is too little memory.\n"), 1;
    }
    if (!vector) return fprintf(stderr, "There is too little memory.\n"), 1;
    for (uint64_t i = 0; i < header.dimension; i++) sum += vector[i];
    printf("%llu elements, s = %u, mean %.9g\n", (unsigned long long)header.dimension, (unsigned)header.s,
           sum / (double)header.dimension);
    free(vector), free(memory.data), free(frame);
    return 0;
}
