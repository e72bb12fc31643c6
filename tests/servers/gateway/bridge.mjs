// A server over HTTP as a program: mcp-proxy stands before programs alone, and has this bridge for others.
import { ServerType, startStdioServer } from "mcp-proxy";

await startStdioServer({ serverType: ServerType.HTTPStream, url: process.argv[2] });
