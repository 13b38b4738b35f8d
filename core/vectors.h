/* Vectors of a processor. A file whose name ends in _vectors.c is compiled once for each kind of them, with AQ_VECTORS
 * set to its number: 0 portable (whatever the compiler makes of plain loops; NEON on ARM), 1 AVX2, 2 AVX-512. Each build
 * has its functions in a table of its own, AQ_NAME(aq_..._kernels); AQ_PICK finds the one that this machine uses. */
#ifndef AQ_VECTORS_H
#define AQ_VECTORS_H

#include "inside.h"

#define AQ_JOIN_(name, number) name##_##number
#define AQ_JOIN(name, number) AQ_JOIN_(name, number)
#define AQ_NAME(name) AQ_JOIN(name, AQ_VECTORS)

extern int32_t aq_vectors; /* dispatch.c sets it when the library is loaded */

#if defined(__x86_64__) && !defined(AQ_PORTABLE)
#define AQ_DECLARE(type, name) extern const type name##_0, name##_1, name##_2
#define AQ_PICK(name) (aq_vectors == 2 ? &name##_2 : aq_vectors == 1 ? &name##_1 : &name##_0)
#else
#define AQ_DECLARE(type, name) extern const type name##_0
#define AQ_PICK(name) (&name##_0)
#endif

#endif
