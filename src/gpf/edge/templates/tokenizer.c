#define LEVELS $levels
#define OCTANTS $octants

/* The level of a reading: how many edges lie below it. */
static int level(float reading)
{
    static const float edges[LEVELS - 1] = {$edges};
    int count = 0;
    for (int k = 0; k < LEVELS - 1; ++k) {
        count += reading > edges[k];
    }
    return count;
}

/* The octant that the wind comes from, as the heading sees it; 0 when it is calm. */
static int octant(const float sensors[GPF_SENSORS])
{
    const double pi = 3.141592653589793;
    double turns = ($octant_sign * ((double)sensors[3] + pi - (double)sensors[4]) + $octant_offset) / (2.0 * pi);
    if (sensors[2] < $calm) {
        return 0;
    }
    turns -= (double)(long)turns; /* to [0, 1), without libm; angles are those of few turns */
    if (turns < 0.0) {
        turns += 1.0;
    }
    return (int)(turns * OCTANTS) % OCTANTS;
}
