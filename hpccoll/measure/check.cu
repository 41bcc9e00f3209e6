// Fills buffers with values that repeat, and counts what differs from them: check_gpu.py says how segments are made.
//
// ITEMSIZE is the bytes of an element; 16 bytes go at once. A period is read over and over, so that it stays in L2: a
// fill costs the writes of what it fills, a check the reads.

typedef unsigned long long Word;

#if ITEMSIZE == 1
typedef unsigned char Element;
#elif ITEMSIZE == 2
typedef unsigned short Element;
#elif ITEMSIZE == 4
typedef unsigned int Element;
#elif ITEMSIZE == 8
typedef Word Element;
#endif

struct Segment {
    Word at;      // the address of the first 16 bytes, of which the first elements may not be of the segment
    Word first;   // element of these 16 bytes and the following at which the segment begins
    Word stop;    // and behind its last one
    Word values;  // the address of the values, 16 bytes after 16 bytes
    Word period;  // after so many of these they repeat
    Word step;    // so many later the next turn begins
};

#define PER_VECTOR (16 / sizeof(Element))

union Vector {
    uint4 whole;
    Element each[PER_VECTOR];
};

// Calls VISIT(place, expected, begin, end) for every 16 bytes of segment blockIdx.y, elements [begin, end) of them.
#define FOR_ALL_VECTORS(VISIT)                                                                                     \
    const Segment s = segments[blockIdx.y];                                                                        \
    const Word stride = (Word)gridDim.x * blockDim.x, hop = stride % s.period;                                     \
    const Word vectors = (s.stop + PER_VECTOR - 1) / PER_VECTOR;                                                   \
    Vector *place = (Vector *)s.at;                                                                                \
    const Vector *values = (const Vector *)s.values;                                                               \
    Word q = (Word)blockIdx.x * blockDim.x + threadIdx.x;                                                          \
    for (Word now = (q + turn * s.step) % s.period; q < vectors; q += stride) {                                    \
        const Word before = q * PER_VECTOR;                                                                        \
        const unsigned begin = before < s.first ? (unsigned)(s.first - before) : 0;                                \
        const unsigned end = before + PER_VECTOR > s.stop ? (unsigned)(s.stop - before) : (unsigned)PER_VECTOR;    \
        VISIT(place[q], values[now], begin, end);                                                                  \
        now += hop;                                                                                                \
        now -= now < s.period ? 0 : s.period;                                                                      \
    }

static __device__ __forceinline__ void put(Vector &place, const Vector &value, unsigned begin, unsigned end) {
    if (begin == 0 && end == PER_VECTOR)
        place.whole = value.whole;
    else
        for (unsigned i = begin; i < end; i++) place.each[i] = value.each[i];
}

static __device__ __forceinline__ unsigned differing(const Vector &place, const Vector &value, unsigned begin,
                                                     unsigned end) {
    unsigned count = 0;
    if (begin == 0 && end == PER_VECTOR) {
        Vector found, right;
        found.whole = place.whole;
        right.whole = value.whole;
        for (unsigned i = 0; i < PER_VECTOR; i++) count += found.each[i] != right.each[i];
    } else {
        for (unsigned i = begin; i < end; i++) count += place.each[i] != value.each[i];
    }
    return count;
}

extern "C" __global__ void fill(const Segment *segments, Word turn) {
#define VISIT(place, value, begin, end) put(place, value, begin, end)
    FOR_ALL_VECTORS(VISIT)
#undef VISIT
}

extern "C" __global__ void count_wrong(const Segment *segments, Word turn, Word *wrong) {
    Word mine = 0;
#define VISIT(place, value, begin, end) mine += differing(place, value, begin, end)
    FOR_ALL_VECTORS(VISIT)
#undef VISIT
    if (mine) atomicAdd(wrong, mine);  // which it seldom is
}
