// The page draws with Preact; HTM gives it templates without a compiler.
import { h, render } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { render };
export { useEffect, useMemo, useRef, useState } from "preact/hooks";
