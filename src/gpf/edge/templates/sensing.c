/* ---- From sensors to the network's inputs ---- */

static int usable(const float sensors[GPF_SENSORS])
{
    for (int i = 0; i < GPF_SENSORS; ++i) {
        if (!(sensors[i] > -1e6f && sensors[i] < 1e6f)) {
            return 0; /* also NaN */
        }
    }
    return 1;
}

#if GPF_REMEMBERS

/* The robot's inputs: see gpf.plume.memory. */
static void observe(gpf_state *m, const float sensors[GPF_SENSORS], float *out)
{
    const float left = sensors[0], right = sensors[1], direction = sensors[3], heading = sensors[4];
    const float from_x = -cosf(direction), from_y = -sinf(direction);
    const float ahead_x = cosf(heading), ahead_y = sinf(heading);
    const int whiff = (left > right ? left : right) > $whiff;
    float length, across, c = 1.0f, s = 0.0f;
    m->age += 1;
    if (m->age == 0) {
        m->x = m->y = m->side = m->met = m->left = m->right = 0.0f;
        m->since = $long_ago;
        m->wind_x = from_x;
        m->wind_y = from_y;
    } else {
        m->x += $stride * ahead_x;
        m->y += $stride * ahead_y;
    }
    m->wind_x += $wind_smoothing * (from_x - m->wind_x);
    m->wind_y += $wind_smoothing * (from_y - m->wind_y);
    m->since += 1.0f;
    if (whiff) {
        m->since = m->x = m->y = m->left = m->right = 0.0f;
        m->met = 1.0f;
        m->side += $side_smoothing * ((left > right ? 1.0f : -1.0f) - m->side);
    }
    length = sqrtf(m->wind_x * m->wind_x + m->wind_y * m->wind_y);
    if (length > 0.0f) {
        c = m->wind_x / length;
        s = m->wind_y / length;
    }
    across = m->y * c - m->x * s;
    m->left = across > m->left ? across : m->left;
    m->right = -across > m->right ? -across : m->right;
    out[0] = (left - right) / (left + right + 3e-3f);
    out[1] = whiff ? 1.0f : 0.0f;
    out[2] = expf(-m->since / 10.0f);
    out[3] = expf(-m->since / 50.0f);
    out[4] = expf(-m->since / 200.0f);
    out[5] = m->side;
    out[6] = across / 3.0f;
    out[7] = (m->x * c + m->y * s) / 3.0f;
    out[8] = from_x * ahead_x + from_y * ahead_y;
    out[9] = from_y * ahead_x - from_x * ahead_y;
    out[10] = c * ahead_x + s * ahead_y;
    out[11] = s * ahead_x - c * ahead_y;
    out[12] = m->met;
    out[13] = (float)m->age / $max_steps;
    out[14] = m->left / 3.0f;
    out[15] = m->right / 3.0f;
}

#else

$tokenizer

/* The paper's 22 inputs: the tokens as one-hot vectors. */
static void observe(gpf_state *state, const float sensors[GPF_SENSORS], float *out)
{
    (void)state;
    for (int i = 0; i < 2 * LEVELS + OCTANTS; ++i) {
        out[i] = 0.0f;
    }
    out[level(sensors[0])] = 1.0f;
    out[LEVELS + level(sensors[1])] = 1.0f;
    out[2 * LEVELS + octant(sensors)] = 1.0f;
}

#endif
