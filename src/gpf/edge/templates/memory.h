    float x, y;           /* place by dead reckoning from the last whiff, m */
    float wind_x, wind_y; /* smoothed direction that the wind comes from */
    float since;          /* steps since the last whiff */
    float side;           /* from which whiffs come */
    float met;            /* 1 after the first whiff */
    float left, right;    /* how far across the wind it has been since then, on either side, m */
    int32_t age;          /* steps since the start; -1 before the first */
